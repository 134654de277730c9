"""Deployments remember the commit that their model's name stood for."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("deployment", "0015_endpoints_that_can_be_dialled"),
    ]

    operations = [
        migrations.AddField(
            model_name="deployment",
            name="pinned_checkpoint",
            field=models.CharField(blank=True, db_default="", max_length=600),
        ),
    ]
