"""The flow of the last minute over every connection. Reads only."""

from helixweb.charts.chart import Chart
from helixweb.charts.live_flow import load_flow, measured_flow
from helixweb.charts.plan_graph import PlanGraph
from helixweb.inventory.models import Cluster
from helixweb.monitoring.models import MetricSample
from helixweb.monitoring.presentation import Serving
from helixweb.monitoring.services import SHARE_WINDOW_S
from helixweb.planning.stored import kept

_graph = kept(PlanGraph)


def flow_chart(cluster: Cluster, serving: Serving, sample: MetricSample | None) -> Chart:
    """Measured until `sample` beside planned."""
    return measured_flow(_graph(serving.row), measured_rates(cluster, sample))


def load_chart(cluster: Cluster, serving: Serving, sample: MetricSample | None) -> Chart:
    """How full nodes and links are, until `sample`."""
    busy = {node.name: node.busy_ratio for node in serving.nodes}
    return load_flow(_graph(serving.row), measured_rates(cluster, sample), busy)


def measured_rates(
    cluster: Cluster, sample: MetricSample | None
) -> dict[tuple[str, str], float] | None:
    """Tokens/s by (source, target), until `sample`; None: not known.

    A coordinator that was started anew within the minute counts from zero again: not known.
    """
    if sample is None or not sample.edge_tokens_total:
        return None
    earlier = MetricSample.unscoped.filter(
        cluster=cluster,
        second__gte=sample.second - SHARE_WINDOW_S,
        second__lt=sample.second,
        generation=sample.generation,
        simulated_plan=None,
    ).order_by("second")
    counted = earlier.only("second", "edge_tokens_total").iterator(chunk_size=1)
    before = next((row for row in counted if row.edge_tokens_total), None)
    if before is None:
        return None
    elapsed_s = sample.second - before.second
    rates = {}
    for edge, total in sample.edge_tokens_total.items():
        source, _, target = edge.partition("->")
        rates[source, target] = (total - before.edge_tokens_total.get(edge, 0)) / elapsed_s
    return None if any(rate < 0 for rate in rates.values()) else rates
