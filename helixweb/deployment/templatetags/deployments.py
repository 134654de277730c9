"""What templates of other apps may show of deployments."""

from django import template
from django.utils import timezone

from helixweb.deployment.models import LIVE, Deployment
from helixweb.deployment.services.deploying import goes_on, options_kept
from helixweb.deployment.services.desired import current_generation
from helixweb.deployment.services.obstacles import find_obstacles
from helixweb.planning.models import Plan

register = template.Library()
# Of the deployments of a cluster the newest are shown; all of them are in the list.
NEWEST = 10


@register.simple_tag
def deploy_obstacles(plan: Plan) -> tuple[str, ...]:
    """Why the plan cannot be deployed now, one sentence each."""
    return find_obstacles(plan, now=timezone.now())


@register.simple_tag
def live_deployment(plan: Plan) -> Deployment | None:
    """What the plan's cluster is busy with; deploying the plan would supersede it."""
    live = Deployment.objects.filter(cluster=plan.cluster_id, status__in=LIVE)
    deferred = ("serving_plan", "plan__document", "plan__problem")
    return live.select_related("model", "plan").defer(*deferred).first()


@register.simple_tag
def requests_go_on(live: Deployment | None, plan: Plan) -> bool:
    """Whether requests under way go on where the plan takes the place of what is in service."""
    return live is not None and goes_on(live, plan)


@register.simple_tag
def kept_options(plan: Plan) -> dict[str, int | float]:
    """What one button deploys with, where something runs that the plan can be served beside."""
    return options_kept(plan)


@register.simple_tag
def revisions_of(deployment: Deployment) -> list[Deployment]:
    """What its cluster ran before and since, the newest first."""
    rows = Deployment.objects.filter(cluster=deployment.cluster_id).select_related(
        "plan", "created_by"
    )
    deferred = ("serving_plan", "plan__document", "plan__problem")
    return list(rows.defer(*deferred).order_by("-generation")[:NEWEST])


@register.simple_tag
def cluster_generation(plan: Plan) -> int:
    """What is in service while the page is shown; whoever deploys then means to replace that."""
    return current_generation(plan.cluster_id)
