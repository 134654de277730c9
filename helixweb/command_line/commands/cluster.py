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
    find=lambda site, word, _: cluster_named(site, word),
    cells=columns("id name coordinator_region mean_prompt_tokens mean_output_tokens replanning"),
    fields=dict(
        (
            column("coordinator_region"),
            column("mean_prompt_tokens", positive, "--prompt-tokens", "mean of a request"),
            column("mean_output_tokens", positive, "--output-tokens", "mean of a request"),
            column("replanning", choices=("automatic", "ask", "never")),
        )
    ),
)
add_verbs(cluster, CLUSTERS)
