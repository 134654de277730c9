from django.db import migrations

from helixweb.common.long_columns import LongColumnsLast


class Migration(migrations.Migration):
    dependencies = [("monitoring", "0005_simulated_samples_index")]

    operations = [
        LongColumnsLast("metricsample", ("latency_totals", "edge_tokens_total", "nodes")),
        LongColumnsLast("tracedrequest", ("transfers_s", "detail")),
    ]
