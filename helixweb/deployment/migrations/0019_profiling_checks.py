"""A measurement of a node may be a check of what was measured of another of the same kind."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("inventory", "0018_entered_links"),
        ("deployment", "0018_profiling_began_at"),
    ]

    operations = [
        migrations.AddField(
            model_name="profiling",
            name="may_check",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddField(
            model_name="profiling",
            name="like",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to="inventory.profileversion",
            ),
        ),
    ]
