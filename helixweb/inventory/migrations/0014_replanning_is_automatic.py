"""Replanning is automatic by default; clusters whose replanning was chosen keep it."""

from typing import Any

from django.db import migrations, models
from django.utils import timezone
from django.utils.translation import gettext_noop

_TEXT = gettext_noop("Replanning after a lost node is automatic by default.")


def make_automatic(apps: Any, _schema_editor: Any) -> None:
    """Clusters at "ask", the default before, unless the change log says that it was chosen.

    A change of the policy is a line with it among the values that differ; the line of a cluster
    that was added has every value, so one that was added with another policy has chosen, too.
    """
    clusters = apps.get_model("inventory", "Cluster").objects
    changes = apps.get_model("inventory", "Change").objects
    chosen = {
        line.row_id
        for line in changes.filter(kind="cluster").only("row_id", "action", "after").iterator()
        if "replanning" in (after := line.after or {})
        and (line.action != "added" or after["replanning"] != "ask")
    }
    for cluster in clusters.filter(replanning="ask").exclude(pk__in=chosen):
        clusters.filter(pk=cluster.pk).update(replanning="automatic")
        changes.create(
            cluster=cluster,
            kind="cluster",
            row_id=cluster.pk,
            name=cluster.name,
            action="changed",
            text=_TEXT,
            before={"replanning": "ask"},
            after={"replanning": "automatic"},
            at=timezone.now(),
        )


class Migration(migrations.Migration):
    dependencies = [("inventory", "0013_memory_at_the_models_ends")]

    operations = [
        migrations.AlterField(
            model_name="cluster",
            name="replanning",
            field=models.CharField(
                choices=[
                    ("automatic", "automatic: deploy it"),
                    ("ask", "ask: offer it"),
                    ("never", "never: do not look for one"),
                ],
                default="automatic",
                max_length=10,
            ),
        ),
        migrations.RunPython(make_automatic, migrations.RunPython.noop),
    ]
