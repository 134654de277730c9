"""Topics of events: a user may read only those of rows that they may see."""

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

# Model of the rows that a topic `kind:id` names.
MODELS = {
    "cluster": "inventory.Cluster",
    "metrics": "inventory.Cluster",
    "node": "inventory.Node",
    "plan-run": "planning.PlanRun",
    "model-mix": "planning.ModelMix",
    "deployment": "deployment.Deployment",
}


def listen(request: HttpRequest, topics: Sequence[str]) -> Ending:
    """The event that ends a stream of these topics. Raises ValidationError for topics that the
    user may not read."""
    began = broadcaster.latest_place()  # before the rights are checked
    refused = unheard(topics, request)
    if not topics or refused:
        message = f"There is no topic {', '.join(refused)[:200]!r}, or you may not hear it; "
        message += "name topics of rows that you may see, such as cluster:1,plan-run:2."
        raise ValidationError({"topics": [message]})
    return Ending(topic=topic_of(int(request.user.pk or 0)), since=began)


def unheard(topics: Iterable[str], request: HttpRequest) -> list[str]:
    """Topics that do not exist or that the user may not read at this moment. Checked again during a
    stream, as rights may change."""
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
