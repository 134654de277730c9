from django.db import migrations

from helixweb.common.long_columns import LongColumnsLast


class Migration(migrations.Migration):
    dependencies = [("planning", "0007_what_if")]

    operations = [
        LongColumnsLast("planrun", ("problem",)),
        LongColumnsLast("incumbent", ("components", "placement")),
        LongColumnsLast("plan", ("problem", "document")),
        LongColumnsLast("replan", ("points",)),
    ]
