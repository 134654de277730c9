"""Nodes report the weights that they fetch, and where they serve them."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("deployment", "0016_pinned_checkpoint"),
    ]

    operations = [
        migrations.AddField(
            model_name="nodeassignment",
            name="weights",
            field=models.JSONField(
                blank=True,
                db_default=models.Value({}, models.JSONField()),
                default=dict,
                editable=False,
            ),
        ),
    ]
