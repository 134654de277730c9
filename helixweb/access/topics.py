"""Which events a user may hear: those of rows that they may see, and no others."""

from collections.abc import Iterable, Sequence

from django.apps import apps
from django.http import HttpRequest
from rest_framework.exceptions import ValidationError

from helixweb.access.rights import is_still_admitted, rights_of_request
from helixweb.access.roles import NO_ROLE
from helixweb.access.roles_of_holders import topic_of
from helixweb.access.scope import cluster_of
from helixweb.common import broadcaster
from helixweb.common.broadcaster import Ending
from helixweb.common.queries import parsed_id

# Whose cluster a topic `kind:id` belongs to.
MODELS = {
    "cluster": "inventory.Cluster",
    "metrics": "inventory.Cluster",
    "node": "inventory.Node",
    "plan-run": "planning.PlanRun",
    "model-mix": "planning.ModelMix",
    "deployment": "deployment.Deployment",
}


def listen(request: HttpRequest, topics: Sequence[str]) -> Ending:
    """The event that ends a stream of these topics. Raises ValidationError for others than the
    user may hear."""
    began = broadcaster.latest_place()  # before it is asked what may be heard
    refused = unheard(topics, request)
    if not topics or refused:
        told = f"There is no topic {', '.join(refused)[:200]!r}, or you may not hear it; "
        told += "name topics of rows that you may see, such as cluster:1,plan-run:2."
        raise ValidationError({"topics": [told]})
    return Ending(topic=topic_of(int(request.user.pk or 0)), since=began)


def unheard(topics: Iterable[str], request: HttpRequest) -> list[str]:
    """Those that do not exist, or that the user may not hear by the rights of this moment: a stream
    goes on for long."""
    topics = list(topics)
    if not is_still_admitted(request):
        return topics
    rights = rights_of_request(request)
    refused = []
    for topic in topics:
        kind, _, text = topic.partition(":")
        pk = parsed_id(text) if kind in MODELS else None
        if pk is None:
            refused.append(topic)
        elif rights.site == NO_ROLE:
            cluster = cluster_of(apps.get_model(MODELS[kind]), pk=pk)
            if cluster is None or rights.on(cluster) == NO_ROLE:
                refused.append(topic)
    return refused
