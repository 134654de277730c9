"""What came after version 0.1.0."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from helixweb.common.peppers import peppers


def pepper_hashes(apps, schema_editor):
    """Keys were kept as their SHA-256, which is what is hashed under the pepper now."""
    pepper = peppers()[0]
    for key in apps.get_model("common", "ApiKey").objects.filter(pepper=""):
        key.secret_hash, key.pepper = pepper.hash_of(key.secret_hash), pepper.id
        key.save(update_fields=["secret_hash", "pepper"])


def end_keys(apps, schema_editor):
    """What is hashed under a pepper cannot be turned back: such keys admit nobody any more."""


class Migration(migrations.Migration):
    replaces = [
        ("common", "0002_keys_with_limits"),
    ]

    dependencies = [
        ("common", "0001_initial"),
        ("inventory", "0002_since_0_1_0"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="FailedLogins",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("counted", models.CharField(max_length=80, unique=True)),
                ("failures", models.PositiveIntegerField(default=0)),
                ("since", models.DateTimeField(db_index=True)),
            ],
        ),
        migrations.AddField(
            model_name="apikey",
            name="cluster",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="+",
                to="inventory.cluster",
            ),
        ),
        migrations.AddField(
            model_name="apikey",
            name="minute",
            field=models.PositiveBigIntegerField(default=0),
        ),
        migrations.AddField(
            model_name="apikey",
            name="minute_requests",
            field=models.PositiveIntegerField(default=0),
        ),
        migrations.AddField(
            model_name="apikey",
            name="networks",
            field=models.JSONField(blank=True, default=list),
        ),
        migrations.AddField(
            model_name="apikey",
            name="pepper",
            field=models.CharField(blank=True, max_length=8),
        ),
        migrations.AddField(
            model_name="apikey",
            name="requests_per_min",
            field=models.PositiveIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="apikey",
            name="tokens_per_day",
            field=models.PositiveBigIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="apikey",
            name="tokens_per_min",
            field=models.PositiveIntegerField(blank=True, null=True),
        ),
        migrations.CreateModel(
            name="SessionOfUser",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("session_key", models.CharField(max_length=40, unique=True)),
                ("address", models.CharField(blank=True, max_length=64)),
                ("browser", models.CharField(blank=True, max_length=200)),
                ("began_at", models.DateTimeField(auto_now_add=True)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="KeyUsage",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("day", models.DateField()),
                ("rest_requests", models.PositiveBigIntegerField(default=0)),
                ("requests", models.PositiveBigIntegerField(default=0)),
                ("prompt_tokens", models.PositiveBigIntegerField(default=0)),
                ("output_tokens", models.PositiveBigIntegerField(default=0)),
                (
                    "key",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="usage",
                        to="common.apikey",
                    ),
                ),
            ],
            options={
                "ordering": ["-day"],
                "constraints": [
                    models.UniqueConstraint(fields=("key", "day"), name="key_usage_one_a_day")
                ],
            },
        ),
        migrations.RunPython(pepper_hashes, end_keys),
    ]
