import django.core.validators
import django.db.models.deletion
from django.db import migrations, models

import helixweb.inventory.validators


class Migration(migrations.Migration):
    dependencies = [
        ("inventory", "0016_reach"),
    ]

    operations = [
        migrations.AddField(
            model_name="languagemodel",
            name="head_dim",
            field=models.PositiveIntegerField(
                blank=True, null=True, validators=[django.core.validators.MinValueValidator(1)]
            ),
        ),
        migrations.AddField(
            model_name="languagemodel",
            name="embedding_bytes",
            field=models.FloatField(
                blank=True,
                null=True,
                validators=[helixweb.inventory.validators.validate_not_negative],
            ),
        ),
        migrations.AddField(
            model_name="languagemodel",
            name="head_bytes",
            field=models.FloatField(
                blank=True,
                null=True,
                validators=[helixweb.inventory.validators.validate_not_negative],
            ),
        ),
        migrations.AddField(
            model_name="languagemodel",
            name="architecture",
            field=models.CharField(
                blank=True,
                db_default="",
                max_length=80,
                validators=[helixweb.inventory.validators.validate_text],
            ),
        ),
        migrations.AddField(
            model_name="languagemodel",
            name="dtype",
            field=models.CharField(
                blank=True,
                db_default="",
                max_length=40,
                validators=[helixweb.inventory.validators.validate_text],
            ),
        ),
        migrations.CreateModel(
            name="CheckpointLook",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("path", models.CharField(max_length=500)),
                ("asked_at", models.DateTimeField()),
                ("is_answered", models.BooleanField(default=False)),
                ("facts", models.JSONField(blank=True, null=True)),
                ("error", models.TextField(blank=True)),
                (
                    "node",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="checkpoint_looks",
                        to="inventory.node",
                    ),
                ),
            ],
            options={"abstract": False},
        ),
    ]
