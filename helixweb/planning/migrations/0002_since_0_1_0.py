"""What came after version 0.1.0."""

from django.db import migrations

from helixweb.common.long_columns import LongColumnsLast


class Migration(migrations.Migration):
    replaces = [
        ("planning", "0008_long_columns_last"),
    ]

    dependencies = [
        ("planning", "0001_initial"),
    ]

    operations = [
        LongColumnsLast("planrun", ("problem",)),
        LongColumnsLast("incumbent", ("components", "placement")),
        LongColumnsLast("plan", ("problem", "document")),
        LongColumnsLast("replan", ("points",)),
    ]
