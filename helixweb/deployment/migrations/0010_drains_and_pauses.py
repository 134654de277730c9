import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("deployment", "0009_follows"),
        ("inventory", "0006_replanning"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name="deployment",
            name="paused_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.CreateModel(
            name="Drain",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("requests", models.PositiveIntegerField(null=True)),
                ("needed", models.BooleanField(default=False)),
                ("began_at", models.DateTimeField()),
                ("let_go_at", models.DateTimeField(null=True)),
                ("drained_at", models.DateTimeField(null=True)),
                (
                    "created_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "node",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="drain",
                        to="inventory.node",
                    ),
                ),
            ],
            options={
                "ordering": ["pk"],
            },
        ),
    ]
