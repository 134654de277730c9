from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("deployment", "0013_whole_model_instances"),
    ]

    operations = [
        migrations.AlterField(
            model_name="phasechange",
            name="phase",
            field=models.CharField(
                choices=[
                    ("idle", "idle"),
                    ("loading", "loading"),
                    ("ready", "ready"),
                    ("stopping", "stopping"),
                    ("failed", "failed"),
                    ("lost", "lost"),
                ],
                max_length=10,
            ),
        ),
    ]
