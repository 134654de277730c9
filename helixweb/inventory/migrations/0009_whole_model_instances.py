from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("inventory", "0008_profile_versions"),
    ]

    operations = [
        migrations.AddField(
            model_name="profile",
            name="instance_times",
            field=models.JSONField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="node",
            name="declared_gpus",
            field=models.PositiveIntegerField(default=1),
        ),
    ]
