"""Rows of monitoring. `services.py` is the only writer."""

from typing import Any

from django.db import models

from helixweb.access.scope import InCluster
from helixweb.inventory.columns import cluster_key, unique

# Columns of a sample that a report has under the same name, and all of the cluster as a whole.
REPORTED = (
    "generation", "output_tokens_per_s", "prompt_tokens_per_s", "ttft_p50_s", "ttft_p95_s",
    "itl_p50_s", "itl_p95_s", "tpot_p50_s", "tpot_p95_s", "e2e_p50_s", "e2e_p95_s",
)  # fmt: skip
NUMBERS = (*REPORTED, "running", "waiting")
NODE_NUMBERS = (
    "kv_used_pages", "kv_total_pages", "sequences", "busy_ratio", "tokens_per_s", "flow_share",
    "kv_promised_ratio",
)  # fmt: skip


class MetricSample(InCluster):
    """Values of one report of a cluster's coordinator; at most one per second.

    Rates, percentiles (seconds) and gauges are those of the report, over its own window. `nodes` is
    node name -> `NodeSample`. `entered_tokens_total` counts tokens that left the coordinator for a
    first stage, since the coordinator started. `second` is `at` in whole Unix seconds. A sample
    with a `simulated_plan` is of no coordinator: the simulator made it from that plan.
    `latency_totals` and `edge_tokens_total` are counted since the coordinator started; see the
    report.
    """

    cluster = cluster_key("metric_samples")
    second = models.BigIntegerField()
    at = models.DateTimeField()
    generation = models.PositiveIntegerField()
    output_tokens_per_s = models.FloatField()
    prompt_tokens_per_s = models.FloatField()
    ttft_p50_s = models.FloatField(null=True)
    ttft_p95_s = models.FloatField(null=True)
    itl_p50_s = models.FloatField(null=True)
    itl_p95_s = models.FloatField(null=True)
    tpot_p50_s = models.FloatField(null=True)
    tpot_p95_s = models.FloatField(null=True)
    e2e_p50_s = models.FloatField(null=True)
    e2e_p95_s = models.FloatField(null=True)
    running = models.PositiveIntegerField()
    waiting = models.PositiveIntegerField()
    entered_tokens_total = models.PositiveBigIntegerField()
    nodes = models.JSONField()
    latency_totals = models.JSONField(default=dict)
    edge_tokens_total = models.JSONField(default=dict)
    simulated_plan = models.ForeignKey(
        "planning.Plan", null=True, on_delete=models.CASCADE, related_name="simulated_samples"
    )

    class Meta:
        ordering = ["second"]
        constraints = [unique("metric_sample_one_a_second_in_cluster", "cluster", "second")]
        indexes = [
            models.Index(
                fields=["cluster", "second"],
                condition=models.Q(simulated_plan__isnull=False),
                name="metric_sample_simulated",
            )
        ]

    def __str__(self) -> str:
        return f"{self.cluster} at {self.at:%Y-%m-%d %H:%M:%S}"

    @property
    def simulated(self) -> bool:
        return self.simulated_plan_id is not None

    @property
    def numbers(self) -> dict[str, Any]:
        """Values of the cluster as a whole."""
        return {name: getattr(self, name) for name in NUMBERS}

    @property
    def node_numbers(self) -> dict[str, dict[str, Any]]:
        """`NODE_NUMBERS` by node; None: unknown."""
        return {
            name: {key: content.get(key) for key in NODE_NUMBERS}
            for name, content in self.nodes.items()
        }


class MetricRollup(InCluster):
    """Samples of a cluster over one step from `second` on, aggregated for longer retention.

    `values` has means of rates, gauges and medians, maxima of 95th percentiles, and the last
    `latency_totals`.
    """

    cluster = cluster_key("metric_rollups")
    second = models.BigIntegerField()
    values = models.JSONField()
    simulated = models.BooleanField()

    class Meta:
        ordering = ["second"]
        constraints = [unique("metric_rollup_one_a_step_in_cluster", "cluster", "second")]

    def __str__(self) -> str:
        return f"{self.cluster} from {self.second}"


class TracedRequest(InCluster):
    """A request that its coordinator traced; `detail` is the whole trace.

    `path` has the names of its nodes, each in a line of its own, an empty one before and after;
    `transfers_s` the seconds on each link it took, by the link's name.
    """

    cluster = cluster_key("traced_requests")
    request = models.CharField(max_length=16)
    arrived_at = models.DateTimeField()
    generation = models.PositiveIntegerField()
    model_name = models.CharField(max_length=200)
    outcome = models.CharField(max_length=64)
    prompt_tokens = models.PositiveIntegerField()
    output_tokens = models.PositiveIntegerField()
    queue_s = models.FloatField()
    ttft_s = models.FloatField(null=True)
    tpot_s = models.FloatField(null=True)
    e2e_s = models.FloatField()
    attempts = models.PositiveIntegerField()
    path = models.TextField()
    transfers_s = models.JSONField(default=dict)
    detail = models.JSONField()

    class Meta:
        ordering = ["-arrived_at", "-pk"]
        indexes = [
            models.Index(fields=["cluster", "-arrived_at"], name="traced_requests_newest"),
            models.Index(fields=["cluster", "-e2e_s"], name="traced_requests_slowest"),
        ]
        constraints = [unique("traced_request_once_in_cluster", "cluster", "request")]

    def __str__(self) -> str:
        return self.request

    @property
    def nodes(self) -> list[str]:
        """The nodes of its stages, in order."""
        return [name for name in self.path.split("\n") if name]


class LivePrediction(InCluster):
    """A simulation of a deployment at its load at `at`: requests `running` at once, and their mean
    lengths. `forecast` as a simulation's."""

    cluster_path = "deployment__cluster"

    deployment = models.OneToOneField(
        "deployment.Deployment", on_delete=models.CASCADE, related_name="live_prediction"
    )
    generation = models.PositiveIntegerField()
    running = models.FloatField()
    mean_prompt_tokens = models.FloatField()
    mean_output_tokens = models.FloatField()
    forecast = models.JSONField()
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"prediction of {self.deployment} at {self.running:.1f} requests"
