"""What came after version 0.1.0."""

from typing import Any

import django.core.validators
import django.db.models.deletion
from django.db import migrations, models
from django.utils import timezone
from django.utils.translation import gettext_noop

import helixweb.inventory.validators

_TEXT = gettext_noop("Replanning after a lost node is automatic by default.")


def make_automatic(apps: Any, _schema_editor: Any) -> None:
    """Clusters at "ask", the default before, unless the change log says that it was chosen.

    A change of the policy is a line with it among the values that differ; the line of a cluster
    that was added has every value, so one that was added with another policy has chosen, too.
    """
    clusters = apps.get_model("inventory", "Cluster")._base_manager
    changes = apps.get_model("inventory", "Change")._base_manager
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


def keep_what_people_entered(apps, schema_editor):
    """Pages and REST left the default in what they wrote; nothing else estimated links."""
    for name in ("Link", "RegionLink"):
        rows = apps.get_model("inventory", name)._base_manager
        rows.filter(origin="estimated").update(origin="entered")


class Migration(migrations.Migration):
    replaces = [
        ("inventory", "0007_several_coordinators"),
        ("inventory", "0008_profile_versions"),
        ("inventory", "0009_whole_model_instances"),
        ("inventory", "0010_change_log_of_everything"),
        ("inventory", "0011_model_vllm_flags"),
        ("inventory", "0012_profile_measured_under"),
        ("inventory", "0013_memory_at_the_models_ends"),
        ("inventory", "0014_replanning_is_automatic"),
        ("inventory", "0015_join_tokens_of_several_machines"),
        ("inventory", "0016_reach"),
        ("inventory", "0017_model_facts"),
        ("inventory", "0018_entered_links"),
        ("inventory", "0019_engine"),
    ]

    dependencies = [
        ("inventory", "0001_initial"),
    ]

    operations = [
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
        ),
        migrations.CreateModel(
            name="ProfileVersion",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("number", models.PositiveIntegerField()),
                (
                    "origin",
                    models.CharField(
                        choices=[
                            ("imported", "Imported"),
                            ("measured", "Measured"),
                            ("refined", "Refined"),
                            ("estimated", "Estimated"),
                            ("entered", "Entered"),
                        ],
                        max_length=10,
                    ),
                ),
                ("node", models.CharField(blank=True, max_length=64)),
                ("document", models.JSONField()),
                ("evidence", models.JSONField(blank=True, null=True)),
                ("recorded_at", models.DateTimeField()),
                (
                    "profile",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="versions",
                        to="inventory.profile",
                    ),
                ),
            ],
            options={
                "ordering": ["-number"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("profile", "number"), name="profile_version_unique_in_profile"
                    )
                ],
            },
        ),
        migrations.AddField(
            model_name="change",
            name="actor_kind",
            field=models.CharField(
                choices=[
                    ("site", "the site"),
                    ("person", "person"),
                    ("key", "API key"),
                    ("process", "process"),
                    ("command", "command"),
                    ("nobody", "nobody known"),
                ],
                db_default="site",
                default="site",
                max_length=8,
            ),
        ),
        migrations.AddField(
            model_name="change",
            name="address",
            field=models.CharField(blank=True, db_default="", max_length=64),
        ),
        migrations.AddField(
            model_name="change",
            name="api_key",
            field=models.CharField(blank=True, db_default="", max_length=16),
        ),
        migrations.AddField(
            model_name="change",
            name="cluster_name",
            field=models.CharField(blank=True, max_length=64),
        ),
        migrations.AddField(
            model_name="change",
            name="comment",
            field=models.CharField(blank=True, db_default="", max_length=200),
        ),
        migrations.AddField(
            model_name="change",
            name="request_id",
            field=models.CharField(blank=True, db_default="", max_length=64),
        ),
        migrations.AddField(
            model_name="coordinator",
            name="peer",
            field=models.CharField(default="coordinator", editable=False, max_length=64),
        ),
        migrations.AddField(
            model_name="coordinator",
            name="reach",
            field=models.JSONField(
                blank=True,
                db_default=models.Value({}, models.JSONField()),
                default=dict,
                editable=False,
            ),
        ),
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
            name="engine",
            field=models.CharField(
                choices=[("auto", "auto"), ("vllm", "vllm"), ("helix", "helix")],
                db_default="auto",
                default="auto",
                max_length=8,
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
            name="head_dim",
            field=models.PositiveIntegerField(
                blank=True, null=True, validators=[django.core.validators.MinValueValidator(1)]
            ),
        ),
        migrations.AddField(
            model_name="languagemodel",
            name="vllm_flags",
            field=models.CharField(
                blank=True,
                max_length=1000,
                validators=[helixweb.inventory.validators.validate_vllm_flags],
            ),
        ),
        migrations.AddField(
            model_name="languagemodel",
            name="why_not_split",
            field=models.CharField(
                blank=True,
                db_default="",
                max_length=300,
                validators=[helixweb.inventory.validators.validate_text],
            ),
        ),
        migrations.AddField(
            model_name="node",
            name="declared_gpus",
            field=models.PositiveIntegerField(default=1),
        ),
        migrations.AddField(
            model_name="node",
            name="reach",
            field=models.JSONField(
                blank=True,
                db_default=models.Value({}, models.JSONField()),
                default=dict,
                editable=False,
            ),
        ),
        migrations.AddField(
            model_name="profile",
            name="instance_times",
            field=models.JSONField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="profile",
            name="measured_under",
            field=models.JSONField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="profile",
            name="memory",
            field=models.JSONField(blank=True, null=True),
        ),
        migrations.AlterField(
            model_name="change",
            name="cluster",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="changes",
                to="inventory.cluster",
            ),
        ),
        migrations.AlterField(
            model_name="change",
            name="kind",
            field=models.CharField(max_length=40),
        ),
        migrations.AlterField(
            model_name="coordinator",
            name="cluster",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="coordinators",
                to="inventory.cluster",
            ),
        ),
        migrations.AddIndex(
            model_name="change",
            index=models.Index(fields=["request_id"], name="change_of_request"),
        ),
        migrations.AddIndex(
            model_name="change",
            index=models.Index(fields=["at"], name="change_at"),
        ),
        migrations.AddConstraint(
            model_name="coordinator",
            constraint=models.UniqueConstraint(
                fields=("cluster", "name"), name="coordinator_unique_in_cluster"
            ),
        ),
        migrations.AddConstraint(
            model_name="coordinator",
            constraint=models.UniqueConstraint(
                fields=("cluster", "peer"), name="coordinator_peer_unique_in_cluster"
            ),
        ),
        migrations.RunPython(make_automatic, migrations.RunPython.noop),
        migrations.RunPython(keep_what_people_entered, migrations.RunPython.noop),
    ]
