"""Which events somebody may hear: those of rows that they may see, and no others."""

from collections.abc import Iterable

from django.apps import apps
from django.http import HttpRequest

from helixweb.access.rights import is_still_admitted, rights_of_request
from helixweb.access.roles import NO_ROLE
from helixweb.access.scope import cluster_of
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


def unheard(topics: Iterable[str], request: HttpRequest) -> list[str]:
    """Those that nobody may hear, or not whoever asks, as it is known now: a stream goes on for
    long."""
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
