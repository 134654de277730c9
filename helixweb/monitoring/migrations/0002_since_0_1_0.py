"""What came after version 0.1.0."""

import django.db.models.deletion
from django.db import migrations, models

from helixweb.common.long_columns import LongColumnsLast


class Migration(migrations.Migration):
    replaces = [
        ("monitoring", "0006_long_columns_last"),
        ("monitoring", "0007_live_predictions"),
    ]

    dependencies = [
        ("monitoring", "0001_initial"),
        ("deployment", "0002_since_0_1_0"),
    ]

    operations = [
        LongColumnsLast("metricsample", ("latency_totals", "edge_tokens_total", "nodes")),
        LongColumnsLast("tracedrequest", ("transfers_s", "detail")),
        migrations.CreateModel(
            name="LivePrediction",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("generation", models.PositiveIntegerField()),
                ("running", models.FloatField()),
                ("mean_prompt_tokens", models.FloatField()),
                ("mean_output_tokens", models.FloatField()),
                ("forecast", models.JSONField()),
                ("at", models.DateTimeField()),
                (
                    "deployment",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="live_prediction",
                        to="deployment.deployment",
                    ),
                ),
            ],
        ),
    ]
