"""Table rows of a deployment's whole-model instances, from reports of agents and coordinators."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.utils.translation import gettext_noop

from helixweb.deployment.coordinators import reports_on
from helixweb.deployment.joint_report import joint_report
from helixweb.deployment.models import Deployment, NodeAssignment
from helixweb.planning.stored import stored_plan
from runtime.protocol.control import CoordinatorReport
from runtime.protocol.instance_orders import PIPELINES, InstanceTraffic
from runtime.protocol.trust import stays_here

ELSEWHERE = "url"
# Conditions of runtime.instances.health in the words of pages, and the colour of their badge.
CONDITIONS = {
    "idle": (gettext_noop("not started"), ""),
    "waiting": (gettext_noop("failed; starts again"), "bad"),
    "starting": (gettext_noop("starting"), "live"),
    "ready": (gettext_noop("healthy"), "good"),
    "unwell": (gettext_noop("unhealthy"), "bad"),
    "draining": (gettext_noop("draining"), "warn"),
    "stopping": (gettext_noop("ending"), "warn"),
}
UNKNOWN = (gettext_noop("not heard of"), "")


def instances_view(
    deployment: Deployment, *, now: datetime, node_name: str | None = None
) -> dict[str, Any] | None:
    """`rows` of those of the deployment, or of one of its nodes; None where there are none.

    `pipelines` is what coordinators send to the pipelines beside the instances.
    """
    rows = deployment.assignments.exclude(instances=[]).select_related("node").order_by("pk")
    if node_name is not None:
        rows = rows.filter(node_name=node_name)
    assignments = list(rows.defer("desired", "stats", "node__hardware"))
    if not assignments:
        return None
    traffic = _traffic(deployment, now=now)
    answered = sum(one.answered_total for one in traffic.values())
    plan = stored_plan(deployment.plan)
    predicted = {one.name: one.output_tokens_per_s for one in plan.instances}
    pipelines = traffic.get(PIPELINES)
    return {
        "rows": [
            _row(order, assignment, traffic=traffic, answered=answered, predicted=predicted)
            for assignment in assignments
            for order in assignment.instances
        ],
        "pipelines": pipelines,
        "pipelines_share": pipelines.answered_total / answered if pipelines and answered else None,
        "theta": deployment.theta,
    }


def _traffic(deployment: Deployment, *, now: datetime) -> Mapping[str, InstanceTraffic]:
    """Traffic by instance of the current generation, from online coordinators' joint report."""
    reports = reports_on(deployment, online_at=now)
    heard = [CoordinatorReport.model_validate(one.report) for one in reports]
    return joint_report(heard).instances if heard else {}


def _is_unencrypted(url: str) -> bool:
    """True for plain HTTP to a host other than localhost."""
    return url.startswith("http:") and not stays_here(url)


def _row(
    order: dict[str, Any],
    assignment: NodeAssignment,
    *,
    traffic: Mapping[str, InstanceTraffic],
    answered: int,
    predicted: Mapping[str, float],
) -> dict[str, Any]:
    """Table row of an instance, from reports of its agent and the coordinators; None: not reported.

    `share` is of all answers begun since coordinators last got a change of the instances.
    `left_alone`: healthy, but gets no requests because some failed there. `unencrypted`: traffic to
    a server elsewhere can be read on the network.
    """
    name = order["name"]
    observed = {one["name"]: one for one in assignment.observed_instances}.get(name, {})
    sent = traffic.get(name)
    is_elsewhere = order["backend"] == ELSEWHERE
    condition = sent.condition if is_elsewhere and sent else observed.get("condition", "")
    words, kind = CONDITIONS.get(condition, UNKNOWN)
    left_alone = condition == "ready" and sent is not None and not sent.open
    message = observed.get("message", "")
    if sent is not None and (is_elsewhere or condition == "ready") and not message:
        message = sent.message
    return {
        "name": name,
        "node": assignment.node_name,
        "node_id": assignment.node_id,
        "backend": order["backend"],
        "url": order["url"],
        "unencrypted": _is_unencrypted(order["url"]),
        "gpus": tuple(order["gpus"]),
        "condition": words,
        "kind": "warn" if left_alone else kind,
        "left_alone": left_alone,
        "message": message.partition("; its log ends:")[0],
        "log_tail": observed.get("log_tail", "") or message.partition("; its log ends:")[2],
        "progress": observed.get("progress"),
        "requests": sent.requests if sent else observed.get("requests"),
        "waiting": sent.waiting if sent else None,
        "kv_usage": sent.kv_usage if sent else observed.get("kv_usage"),
        "share": sent.answered_total / answered if sent and answered else None,
        "answered": sent.answered_total if sent else None,
        "failures": sent.failed_total if sent else None,
        "output_tokens_per_s": sent.output_tokens_per_s if sent else None,
        "predicted_tokens_per_s": predicted.get(name, 0.0),
    }
