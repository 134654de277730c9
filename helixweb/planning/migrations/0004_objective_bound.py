"""What bounds an objective other than the flow."""

from django.db import migrations, models

from helixweb.common.long_columns import LongColumnsLast


class Migration(migrations.Migration):
    dependencies = [
        ("planning", "0003_explanation_objective"),
    ]

    operations = [
        migrations.AddField("planrun", "objective_bound", models.FloatField(blank=True, null=True)),
        migrations.AddField("incumbent", "objective_bound", models.FloatField(null=True)),
        LongColumnsLast("planrun", ("problem",)),
        LongColumnsLast("incumbent", ("components", "placement")),
    ]
