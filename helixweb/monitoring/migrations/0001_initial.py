"""The tables of version 0.1.0."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    replaces = [
        ("monitoring", "0002_simulated_samples"),
        ("monitoring", "0003_traced_requests"),
        ("monitoring", "0004_transfers_of_requests"),
        ("monitoring", "0005_simulated_samples_index"),
    ]

    dependencies = [
        ("inventory", "0001_initial"),
        ("planning", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="MetricRollup",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("second", models.BigIntegerField()),
                ("values", models.JSONField()),
                ("simulated", models.BooleanField()),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="metric_rollups",
                        to="inventory.cluster",
                    ),
                ),
            ],
            options={
                "ordering": ["second"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("cluster", "second"), name="metric_rollup_one_a_step_in_cluster"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="MetricSample",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("second", models.BigIntegerField()),
                ("at", models.DateTimeField()),
                ("generation", models.PositiveIntegerField()),
                ("output_tokens_per_s", models.FloatField()),
                ("prompt_tokens_per_s", models.FloatField()),
                ("ttft_p50_s", models.FloatField(null=True)),
                ("ttft_p95_s", models.FloatField(null=True)),
                ("itl_p50_s", models.FloatField(null=True)),
                ("itl_p95_s", models.FloatField(null=True)),
                ("running", models.PositiveIntegerField()),
                ("waiting", models.PositiveIntegerField()),
                ("entered_tokens_total", models.PositiveBigIntegerField()),
                ("nodes", models.JSONField()),
                ("e2e_p50_s", models.FloatField(null=True)),
                ("e2e_p95_s", models.FloatField(null=True)),
                ("edge_tokens_total", models.JSONField(default=dict)),
                ("latency_totals", models.JSONField(default=dict)),
                ("tpot_p50_s", models.FloatField(null=True)),
                ("tpot_p95_s", models.FloatField(null=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="metric_samples",
                        to="inventory.cluster",
                    ),
                ),
                (
                    "simulated_plan",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="simulated_samples",
                        to="planning.plan",
                    ),
                ),
            ],
            options={
                "ordering": ["second"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("simulated_plan__isnull", False)),
                        fields=["cluster", "second"],
                        name="metric_sample_simulated",
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("cluster", "second"), name="metric_sample_one_a_second_in_cluster"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="TracedRequest",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("request", models.CharField(max_length=16)),
                ("arrived_at", models.DateTimeField()),
                ("generation", models.PositiveIntegerField()),
                ("model_name", models.CharField(max_length=200)),
                ("outcome", models.CharField(max_length=64)),
                ("prompt_tokens", models.PositiveIntegerField()),
                ("output_tokens", models.PositiveIntegerField()),
                ("queue_s", models.FloatField()),
                ("ttft_s", models.FloatField(null=True)),
                ("tpot_s", models.FloatField(null=True)),
                ("e2e_s", models.FloatField()),
                ("attempts", models.PositiveIntegerField()),
                ("path", models.TextField()),
                ("detail", models.JSONField()),
                ("transfers_s", models.JSONField(default=dict)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="traced_requests",
                        to="inventory.cluster",
                    ),
                ),
            ],
            options={
                "ordering": ["-arrived_at", "-pk"],
                "indexes": [
                    models.Index(fields=["cluster", "-arrived_at"], name="traced_requests_newest"),
                    models.Index(fields=["cluster", "-e2e_s"], name="traced_requests_slowest"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("cluster", "request"), name="traced_request_once_in_cluster"
                    )
                ],
            },
        ),
    ]
