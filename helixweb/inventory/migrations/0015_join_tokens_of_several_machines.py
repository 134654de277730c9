"""Join tokens that admit several machines; those made before admit one."""

import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("inventory", "0014_replanning_is_automatic"),
    ]

    operations = [
        migrations.AddField(
            model_name="jointoken",
            name="admitted",
            field=models.JSONField(db_default=models.Value([], models.JSONField()), default=list),
        ),
        migrations.AddField(
            model_name="jointoken",
            name="machines",
            field=models.PositiveSmallIntegerField(
                db_default=1,
                default=1,
                validators=[
                    django.core.validators.MinValueValidator(1),
                    django.core.validators.MaxValueValidator(1000),
                ],
            ),
        ),
    ]
