"""`helixweb cluster`: machines that serve together."""

from helixweb.command_line.command import Verbs
from helixweb.command_line.numbers import positive
from helixweb.command_line.output import columns
from helixweb.command_line.resolve import cluster_named
from helixweb.command_line.resource import Resource, add_verbs, column

cluster = Verbs()
CLUSTERS = Resource(
    noun="cluster",
    collection="clusters",
    find=lambda site, arguments, word: cluster_named(site.client, word),
    cells=columns("id name coordinator_region mean_prompt_tokens mean_output_tokens replanning"),
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
