"""What came after version 0.1.0."""

from typing import Any

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from pydantic import ValidationError

from runtime.protocol.control import PeerAddress


def list_them(apps: Any, schema_editor: Any) -> None:
    deployments = apps.get_model("deployment", "Deployment")._base_manager
    for pk, peer in deployments.values_list("pk", "coordinator_peers"):
        deployments.filter(pk=pk).update(coordinator_peers=[peer] if peer else [])


def take_the_first(apps: Any, schema_editor: Any) -> None:
    deployments = apps.get_model("deployment", "Deployment")._base_manager
    for pk, peers in deployments.values_list("pk", "coordinator_peers"):
        deployments.filter(pk=pk).update(coordinator_peers=peers[0] if peers else {})


_SERVING = ("deploying", "ready", "degraded", "failed")


def _is_usable(peer: dict[str, Any]) -> bool:
    try:
        PeerAddress.model_validate(peer)
    except ValidationError:
        return False
    return True


def refuse_unusable_addresses(apps: Any, _schema_editor: Any) -> None:
    """Processes with such an address must join again; deployments that name one are stopped."""
    for name in ("Node", "Coordinator"):
        processes = apps.get_model("inventory", name)._base_manager.filter(joined_at__isnull=False)
        for row in processes.only("data_endpoint", "data_public_key").iterator():
            peer = {
                "name": name, "endpoint": row.data_endpoint, "public_key": row.data_public_key,
            }  # fmt: skip
            if not _is_usable(peer):
                processes.filter(pk=row.pk).update(
                    joined_at=None, credential_hash="", data_endpoint="", data_public_key=""
                )
    deployments = apps.get_model("deployment", "Deployment")._base_manager.filter(
        status__in=_SERVING
    )
    for row in deployments.only("serving_plan", "coordinator_peers").iterator():
        for peer in (*row.serving_plan.get("peers", ()), *row.coordinator_peers):
            if not _is_usable(peer):
                deployments.filter(pk=row.pk).update(
                    status="stopped",
                    message=f"{peer.get('name')} has the address {peer.get('endpoint')}, which "
                    "cannot be dialled; join it again with a valid --data-host, then deploy again",
                )
                break


class Migration(migrations.Migration):
    replaces = [
        ("deployment", "0009_follows"),
        ("deployment", "0010_drains_and_pauses"),
        ("deployment", "0011_several_coordinators"),
        ("deployment", "0012_profilings"),
        ("deployment", "0013_whole_model_instances"),
        ("deployment", "0014_lost_in_the_timeline"),
        ("deployment", "0015_endpoints_that_can_be_dialled"),
        ("deployment", "0016_pinned_checkpoint"),
        ("deployment", "0017_weights_of_nodes"),
        ("deployment", "0018_profiling_began_at"),
        ("deployment", "0019_profiling_checks"),
        ("deployment", "0020_engine"),
    ]

    dependencies = [
        ("deployment", "0001_initial"),
        ("inventory", "0002_since_0_1_0"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RenameField("deployment", "coordinator_peer", "coordinator_peers"),
        migrations.AlterField("deployment", "coordinator_peers", models.JSONField(default=list)),
        migrations.AddField(
            model_name="deployment",
            name="backend_by_node",
            field=models.JSONField(default=dict),
        ),
        migrations.AddField(
            model_name="deployment",
            name="engine",
            field=models.CharField(db_default="auto", default="auto", max_length=8),
        ),
        migrations.AddField(
            model_name="deployment",
            name="engine_by_node",
            field=models.JSONField(
                blank=True, db_default=models.Value({}, models.JSONField()), default=dict
            ),
        ),
        migrations.AddField(
            model_name="deployment",
            name="follows_generation",
            field=models.PositiveIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="deployment",
            name="paused_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="deployment",
            name="pinned_checkpoint",
            field=models.CharField(blank=True, db_default="", max_length=600),
        ),
        migrations.AddField(
            model_name="deployment",
            name="theta",
            field=models.FloatField(default=2.0),
        ),
        migrations.AddField(
            model_name="deployment",
            name="took_over_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="nodeassignment",
            name="instances",
            field=models.JSONField(default=list),
        ),
        migrations.AddField(
            model_name="nodeassignment",
            name="observed_instances",
            field=models.JSONField(default=list),
        ),
        migrations.AddField(
            model_name="nodeassignment",
            name="weights",
            field=models.JSONField(
                blank=True,
                db_default=models.Value({}, models.JSONField()),
                default=dict,
                editable=False,
            ),
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
        migrations.CreateModel(
            name="Profiling",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("ordered", "Ordered"),
                            ("waiting", "Waiting"),
                            ("measuring", "Measuring"),
                            ("done", "Done"),
                            ("failed", "Failed"),
                            ("cancelled", "Cancelled"),
                        ],
                        default="ordered",
                        max_length=10,
                    ),
                ),
                ("done", models.FloatField(default=0.0)),
                ("message", models.TextField(blank=True)),
                ("created_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                ("began_at", models.DateTimeField(blank=True, null=True)),
                ("may_check", models.BooleanField(db_default=False, default=False)),
                (
                    "created_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "like",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="inventory.profileversion",
                    ),
                ),
                (
                    "model",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="inventory.languagemodel"
                    ),
                ),
                (
                    "node",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="profilings",
                        to="inventory.node",
                    ),
                ),
                (
                    "version",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        to="inventory.profileversion",
                    ),
                ),
            ],
            options={
                "ordering": ["-pk"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("state__in", ["ordered", "waiting", "measuring"])),
                        fields=("node",),
                        name="profiling_one_open_on_node",
                    )
                ],
            },
        ),
        migrations.RunPython(list_them, take_the_first),
        migrations.RunPython(refuse_unusable_addresses, migrations.RunPython.noop),
    ]
