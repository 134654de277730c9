"""The tables of version 0.1.0."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    replaces = [
        ("deployment", "0002_copies_and_degraded"),
        ("deployment", "0003_tensor_parallel"),
        ("deployment", "0004_emulated"),
        ("deployment", "0005_link_weights"),
        ("deployment", "0006_node_log"),
        ("deployment", "0007_peers_once"),
        ("deployment", "0008_repairs"),
    ]

    dependencies = [
        ("inventory", "0001_initial"),
        ("planning", "0001_initial"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Deployment",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("generation", models.PositiveIntegerField()),
                (
                    "status",
                    models.CharField(
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
                ("message", models.TextField(blank=True)),
                ("page_tokens", models.PositiveIntegerField()),
                ("max_batch_tokens", models.PositiveIntegerField()),
                ("kv_high_water", models.FloatField()),
                ("max_queued_requests", models.PositiveIntegerField()),
                ("max_context_tokens", models.PositiveIntegerField()),
                ("serving_plan", models.JSONField()),
                ("created_at", models.DateTimeField()),
                ("ready_at", models.DateTimeField(blank=True, null=True)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                ("changed_at", models.DateTimeField()),
                ("pushed_at", models.DateTimeField(blank=True, null=True)),
                ("model_name", models.CharField(max_length=120)),
                ("checkpoint", models.CharField(max_length=500)),
                ("tensor_parallel", models.PositiveIntegerField(default=1)),
                ("tensor_parallel_by_node", models.JSONField(default=dict)),
                ("emulated", models.BooleanField(default=False)),
                ("coordinator_peer", models.JSONField(default=dict)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="deployments",
                        to="inventory.cluster",
                    ),
                ),
                (
                    "created_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "model",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.RESTRICT,
                        related_name="deployments",
                        to="inventory.languagemodel",
                    ),
                ),
                (
                    "plan",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.RESTRICT,
                        related_name="deployments",
                        to="planning.plan",
                    ),
                ),
            ],
            options={
                "ordering": ["-pk"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("cluster", "generation"),
                        name="deployment_generation_unique_in_cluster",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(
                            ("status__in", ["degraded", "deploying", "failed", "ready", "stopping"])
                        ),
                        fields=("cluster",),
                        name="deployment_one_live_in_cluster",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="LatestReport",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("report", models.JSONField()),
                ("at", models.DateTimeField()),
                (
                    "coordinator",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="latest_report",
                        to="inventory.coordinator",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="LinkWeights",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("generation", models.PositiveIntegerField()),
                ("rates", models.JSONField(default=dict)),
                ("routing_weights", models.JSONField(default=dict)),
                ("flow_tokens_per_s", models.FloatField()),
                ("held", models.BooleanField(default=False)),
                ("changed_at", models.DateTimeField()),
                (
                    "deployment",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="link_weights",
                        to="deployment.deployment",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="NodeAssignment",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("node_name", models.CharField(max_length=64)),
                ("desired", models.JSONField()),
                ("observed_generation", models.PositiveIntegerField(default=0)),
                (
                    "phase",
                    models.CharField(
                        choices=[
                            ("idle", "idle"),
                            ("loading", "loading"),
                            ("ready", "ready"),
                            ("stopping", "stopping"),
                            ("failed", "failed"),
                        ],
                        default="idle",
                        max_length=10,
                    ),
                ),
                ("message", models.TextField(blank=True)),
                ("loaded_ratio", models.FloatField(blank=True, null=True)),
                ("stats", models.JSONField(blank=True, null=True)),
                ("updated_at", models.DateTimeField()),
                (
                    "deployment",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="assignments",
                        to="deployment.deployment",
                    ),
                ),
                (
                    "node",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="assignments",
                        to="inventory.node",
                    ),
                ),
            ],
            options={
                "ordering": ["pk"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("deployment", "node_name"), name="assignment_unique_in_deployment"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="NodeLogLine",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("at", models.DateTimeField(db_index=True)),
                (
                    "source",
                    models.CharField(
                        choices=[("agent", "agent"), ("stage", "stage")], max_length=5
                    ),
                ),
                (
                    "level",
                    models.PositiveSmallIntegerField(
                        choices=[(0, "debug"), (1, "info"), (2, "warning"), (3, "error")]
                    ),
                ),
                ("text", models.TextField()),
                (
                    "node",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="log_lines",
                        to="inventory.node",
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["node", "-id"], name="node_log_newest_first")]
            },
        ),
        migrations.CreateModel(
            name="PhaseChange",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "phase",
                    models.CharField(
                        choices=[
                            ("idle", "idle"),
                            ("loading", "loading"),
                            ("ready", "ready"),
                            ("stopping", "stopping"),
                            ("failed", "failed"),
                            ("lost", "lost"),
                        ],
                        max_length=10,
                    ),
                ),
                ("message", models.TextField(blank=True)),
                ("at", models.DateTimeField()),
                (
                    "assignment",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="phase_changes",
                        to="deployment.nodeassignment",
                    ),
                ),
            ],
            options={
                "ordering": ["at", "pk"],
            },
        ),
        migrations.CreateModel(
            name="Repair",
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
                            ("waiting", "Waiting"),
                            ("computing", "Computing"),
                            ("offered", "Offered"),
                            ("deployed", "Deployed"),
                            ("needless", "Needless"),
                            ("failed", "Failed"),
                            ("dismissed", "Dismissed"),
                            ("overtaken", "Overtaken"),
                        ],
                        default="waiting",
                        max_length=10,
                    ),
                ),
                ("lost", models.JSONField(default=list)),
                ("added", models.JSONField(default=list)),
                ("left_out", models.JSONField(default=list)),
                ("unmoved_tokens_per_s", models.FloatField(null=True)),
                ("flow_tokens_per_s", models.FloatField(null=True)),
                ("moved_bytes", models.FloatField(null=True)),
                ("why", models.TextField(blank=True)),
                ("noticed_at", models.DateTimeField()),
                (
                    "deployment",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="repairs",
                        to="deployment.deployment",
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        to="planning.planrun",
                    ),
                ),
            ],
            options={
                "ordering": ["-pk"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("state__in", ["waiting", "computing", "offered"])),
                        fields=("deployment",),
                        name="repair_one_open_in_deployment",
                    )
                ],
            },
        ),
    ]
