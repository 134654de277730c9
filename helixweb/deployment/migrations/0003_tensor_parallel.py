from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("deployment", "0002_copies_and_degraded"),
    ]

    operations = [
        migrations.AddField(
            model_name="deployment",
            name="tensor_parallel",
            field=models.PositiveIntegerField(default=1),
        ),
        migrations.AddField(
            model_name="deployment",
            name="tensor_parallel_by_node",
            field=models.JSONField(default=dict),
        ),
    ]
