"""Orders to measure a node know when its agent took them."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("deployment", "0017_weights_of_nodes"),
    ]

    operations = [
        migrations.AddField(
            model_name="profiling",
            name="began_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
    ]
