"""A deployment has the addresses of all coordinators of its cluster."""

from typing import Any

from django.db import migrations, models


def list_them(apps: Any, schema_editor: Any) -> None:
    deployments = apps.get_model("deployment", "Deployment").objects
    for pk, peer in deployments.values_list("pk", "coordinator_peers"):
        deployments.filter(pk=pk).update(coordinator_peers=[peer] if peer else [])


def take_the_first(apps: Any, schema_editor: Any) -> None:
    deployments = apps.get_model("deployment", "Deployment").objects
    for pk, peers in deployments.values_list("pk", "coordinator_peers"):
        deployments.filter(pk=pk).update(coordinator_peers=peers[0] if peers else {})


class Migration(migrations.Migration):
    dependencies = [
        ("deployment", "0010_drains_and_pauses"),
        ("inventory", "0007_several_coordinators"),
    ]

    operations = [
        migrations.RenameField("deployment", "coordinator_peer", "coordinator_peers"),
        migrations.RunPython(list_them, take_the_first),
        migrations.AlterField("deployment", "coordinator_peers", models.JSONField(default=list)),
    ]
