"""`helixweb cluster`: machines that serve together."""

from helixweb.command_line.command import Verbs
from helixweb.command_line.numbers import positive
from helixweb.command_line.resolve import cluster_named
from helixweb.command_line.resource import Resource, add_verbs, column

cluster = Verbs()
CLUSTERS = Resource(
    noun="cluster",
    collection="clusters",
    find=lambda site, arguments, word: cluster_named(site.client, word),
    cells={
        "ID": "id",
        "NAME": "name",
        "COORDINATOR IN": "coordinator_region",
        "PROMPT": "mean_prompt_tokens",
        "OUTPUT": "mean_output_tokens",
        "REPLANNING": "replanning",
    },
    details={
        "id": "id",
        "name": "name",
        "coordinator in": "coordinator_region",
        "prompt tokens": "mean_prompt_tokens",
        "output tokens": "mean_output_tokens",
        "replanning": "replanning",
        "made": "created_at",
    },
    fields=dict(
        (
            column("coordinator_region"),
            column(
                "mean_prompt_tokens", "--prompt-tokens", type=positive, help="mean of a request"
            ),
            column(
                "mean_output_tokens", "--output-tokens", type=positive, help="mean of a request"
            ),
            column("replanning", choices=("automatic", "ask", "never")),
        )
    ),
)
add_verbs(cluster, CLUSTERS)
