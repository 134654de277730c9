"""Peers are kept once for a deployment, no longer once for each of its nodes."""

from django.db import migrations, models

COORDINATOR = "coordinator"


def keep_once(apps, schema_editor):
    rows = apps.get_model("deployment", "NodeAssignment").objects.select_related("deployment")
    for row in rows.iterator(chunk_size=10):
        peers = row.desired.pop("peers", [])
        row.desired["peers"] = []
        row.save(update_fields=["desired"])
        coordinators = [peer for peer in peers if peer["name"] == COORDINATOR]
        if coordinators and not row.deployment.coordinator_peer:
            row.deployment.coordinator_peer = coordinators[0]
            row.deployment.save(update_fields=["coordinator_peer"])


class Migration(migrations.Migration):
    dependencies = [
        ("deployment", "0006_node_log"),
    ]

    operations = [
        migrations.AddField(
            model_name="deployment",
            name="coordinator_peer",
            field=models.JSONField(default=dict),
        ),
        migrations.RunPython(keep_once, migrations.RunPython.noop),
    ]
