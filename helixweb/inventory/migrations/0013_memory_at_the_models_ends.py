from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("inventory", "0012_profile_measured_under"),
    ]

    operations = [
        migrations.AddField(
            model_name="profile",
            name="memory",
            field=models.JSONField(blank=True, null=True),
        ),
    ]
