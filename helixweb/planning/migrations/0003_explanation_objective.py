"""Explanations say by which objective they were computed; those from before went by flow."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("planning", "0002_since_0_1_0"),
    ]

    operations = [
        migrations.AddField(
            model_name="explanation",
            name="objective",
            field=models.CharField(default="flow", max_length=12),
        ),
    ]
