"""Rows of monitoring. `services.py` is the only writer."""

from django.db import models


class MetricSample(models.Model):
    """What one report of a cluster's coordinator said; one a second at most.

    Rates, percentiles (seconds) and gauges are those of the report, over its own window. `nodes` is
    node name -> `NodeSample`. `entered_tokens_total` counts tokens that left the coordinator for a
    first stage, since the coordinator started. `second` is `at` in whole Unix seconds. A sample
    with a `simulated_plan` is of no coordinator: the simulator made it from that plan.
    """

    cluster = models.ForeignKey(
        "inventory.Cluster", on_delete=models.CASCADE, related_name="metric_samples"
    )
    second = models.BigIntegerField()
    at = models.DateTimeField()
    generation = models.PositiveIntegerField()
    output_tokens_per_s = models.FloatField()
    prompt_tokens_per_s = models.FloatField()
    ttft_p50_s = models.FloatField(null=True)
    ttft_p95_s = models.FloatField(null=True)
    itl_p50_s = models.FloatField(null=True)
    itl_p95_s = models.FloatField(null=True)
    running = models.PositiveIntegerField()
    waiting = models.PositiveIntegerField()
    entered_tokens_total = models.PositiveBigIntegerField()
    nodes = models.JSONField()
    simulated_plan = models.ForeignKey(
        "planning.Plan", null=True, on_delete=models.CASCADE, related_name="simulated_samples"
    )

    class Meta:
        ordering = ["second"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "second"], name="metric_sample_one_a_second_in_cluster"
            )
        ]

    def __str__(self) -> str:
        return f"{self.cluster} at {self.at:%Y-%m-%d %H:%M:%S}"
