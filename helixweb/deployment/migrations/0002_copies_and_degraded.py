from typing import Any

from django.db import migrations, models


def copy_from_models(apps: Any, schema_editor: Any) -> None:
    """What serves is what was ordered: the serving plan where there is one."""
    deployments = apps.get_model("deployment", "Deployment").objects.select_related("model")
    for deployment in deployments.iterator():
        ordered = deployment.serving_plan
        deployment.model_name = ordered.get("model_name", deployment.model.name)
        deployment.checkpoint = ordered.get("checkpoint", deployment.model.checkpoint)
        deployment.save(update_fields=["model_name", "checkpoint"])


class Migration(migrations.Migration):
    dependencies = [
        ("deployment", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="deployment",
            name="model_name",
            field=models.CharField(default="", max_length=120),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name="deployment",
            name="checkpoint",
            field=models.CharField(default="", max_length=500),
            preserve_default=False,
        ),
        migrations.AlterField(
            model_name="deployment",
            name="status",
            field=models.CharField(
                choices=[
                    ("deploying", "Deploying"),
                    ("ready", "Ready"),
                    ("degraded", "Degraded"),
                    ("failed", "Failed"),
                    ("stopping", "Stopping"),
                    ("stopped", "Stopped"),
                    ("superseded", "Superseded"),
                ],
                default="deploying",
                max_length=12,
            ),
        ),
        migrations.RemoveConstraint(
            model_name="deployment",
            name="deployment_one_live_in_cluster",
        ),
        migrations.AddConstraint(
            model_name="deployment",
            constraint=models.UniqueConstraint(
                condition=models.Q(
                    ("status__in", ["degraded", "deploying", "failed", "ready", "stopping"])
                ),
                fields=("cluster",),
                name="deployment_one_live_in_cluster",
            ),
        ),
        migrations.RunPython(copy_from_models, migrations.RunPython.noop, elidable=True),
    ]
