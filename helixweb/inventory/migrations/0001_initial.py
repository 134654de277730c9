"""The tables of version 0.1.0."""

import django.core.validators
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import helixweb.inventory.validators


class Migration(migrations.Migration):
    initial = True
    replaces = [
        ("inventory", "0002_measured_times_and_prices"),
        ("inventory", "0003_change_log_tags_and_ages"),
        ("inventory", "0004_heads_of_models"),
        ("inventory", "0005_shared_bandwidths"),
        ("inventory", "0006_replanning"),
    ]

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Cluster",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "name",
                    models.CharField(
                        max_length=64,
                        unique=True,
                        validators=[helixweb.inventory.validators.validate_name],
                    ),
                ),
                (
                    "coordinator_region",
                    models.CharField(
                        default="local",
                        max_length=64,
                        validators=[helixweb.inventory.validators.validate_name],
                    ),
                ),
                (
                    "mean_prompt_tokens",
                    models.FloatField(
                        default=512, validators=[helixweb.inventory.validators.validate_positive]
                    ),
                ),
                (
                    "mean_output_tokens",
                    models.FloatField(
                        default=128, validators=[helixweb.inventory.validators.validate_positive]
                    ),
                ),
                (
                    "source",
                    models.TextField(
                        blank=True, validators=[helixweb.inventory.validators.validate_text]
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "replanning",
                    models.CharField(
                        choices=[
                            ("automatic", "automatic: deploy it"),
                            ("ask", "ask: offer it"),
                            ("never", "never: do not look for one"),
                        ],
                        default="automatic",
                        max_length=10,
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="LanguageModel",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "name",
                    models.CharField(
                        max_length=120,
                        unique=True,
                        validators=[helixweb.inventory.validators.validate_name],
                    ),
                ),
                (
                    "num_layers",
                    models.PositiveIntegerField(
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(10000),
                        ]
                    ),
                ),
                (
                    "activation_bytes_per_token",
                    models.FloatField(validators=[helixweb.inventory.validators.validate_positive]),
                ),
                (
                    "token_bytes",
                    models.FloatField(
                        default=4, validators=[helixweb.inventory.validators.validate_positive]
                    ),
                ),
                (
                    "bytes_per_layer",
                    models.FloatField(validators=[helixweb.inventory.validators.validate_positive]),
                ),
                ("checkpoint", models.CharField(blank=True, max_length=500)),
                (
                    "max_context_tokens",
                    models.PositiveIntegerField(
                        default=2048, validators=[django.core.validators.MinValueValidator(1)]
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "num_heads",
                    models.PositiveIntegerField(
                        blank=True,
                        null=True,
                        validators=[django.core.validators.MinValueValidator(1)],
                    ),
                ),
                (
                    "num_kv_heads",
                    models.PositiveIntegerField(
                        blank=True,
                        null=True,
                        validators=[django.core.validators.MinValueValidator(1)],
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="Coordinator",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("credential_hash", models.CharField(blank=True, db_index=True, max_length=64)),
                ("data_endpoint", models.CharField(blank=True, max_length=300)),
                ("data_public_key", models.CharField(blank=True, max_length=40)),
                ("version", models.CharField(blank=True, max_length=64)),
                ("joined_at", models.DateTimeField(blank=True, null=True)),
                ("last_seen_at", models.DateTimeField(blank=True, null=True)),
                ("silence_announced", models.BooleanField(default=False)),
                (
                    "name",
                    models.CharField(
                        max_length=64, validators=[helixweb.inventory.validators.validate_name]
                    ),
                ),
                ("uuid", models.UUIDField(unique=True)),
                (
                    "http_url",
                    models.CharField(
                        blank=True,
                        max_length=300,
                        validators=[helixweb.inventory.validators.validate_http_url],
                    ),
                ),
                (
                    "cluster",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="coordinator",
                        to="inventory.cluster",
                    ),
                ),
            ],
            options={"ordering": ["pk"]},
        ),
        migrations.CreateModel(
            name="JoinToken",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "role",
                    models.CharField(
                        choices=[("node", "Node"), ("coordinator", "Coordinator")], max_length=12
                    ),
                ),
                ("token_hash", models.CharField(max_length=64, unique=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("expires_at", models.DateTimeField()),
                ("used_at", models.DateTimeField(blank=True, null=True)),
                ("used_by_name", models.CharField(blank=True, max_length=64)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="join_tokens",
                        to="inventory.cluster",
                    ),
                ),
                (
                    "created_by",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at"],
            },
        ),
        migrations.CreateModel(
            name="Node",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("credential_hash", models.CharField(blank=True, db_index=True, max_length=64)),
                ("data_endpoint", models.CharField(blank=True, max_length=300)),
                ("data_public_key", models.CharField(blank=True, max_length=40)),
                ("version", models.CharField(blank=True, max_length=64)),
                ("joined_at", models.DateTimeField(blank=True, null=True)),
                ("last_seen_at", models.DateTimeField(blank=True, null=True)),
                ("silence_announced", models.BooleanField(default=False)),
                (
                    "name",
                    models.CharField(
                        max_length=64, validators=[helixweb.inventory.validators.validate_node_name]
                    ),
                ),
                (
                    "region",
                    models.CharField(
                        default="local",
                        max_length=64,
                        validators=[helixweb.inventory.validators.validate_name],
                    ),
                ),
                ("profile_name", models.CharField(blank=True, max_length=120)),
                ("uuid", models.UUIDField(blank=True, null=True, unique=True)),
                ("hardware", models.JSONField(blank=True, null=True)),
                (
                    "price_per_hour",
                    models.FloatField(
                        blank=True,
                        null=True,
                        validators=[helixweb.inventory.validators.validate_positive],
                    ),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="nodes",
                        to="inventory.cluster",
                    ),
                ),
            ],
            options={
                "ordering": ["pk"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("cluster", "name"), name="node_unique_in_cluster"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="NodeTag",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "name",
                    models.CharField(
                        max_length=32, validators=[helixweb.inventory.validators.validate_tag]
                    ),
                ),
                (
                    "node",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="tags",
                        to="inventory.node",
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
                "constraints": [
                    models.UniqueConstraint(fields=("node", "name"), name="node_tag_unique_on_node")
                ],
            },
        ),
        migrations.CreateModel(
            name="Profile",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "name",
                    models.CharField(
                        max_length=120, validators=[helixweb.inventory.validators.validate_name]
                    ),
                ),
                (
                    "gpu",
                    models.CharField(
                        blank=True,
                        max_length=120,
                        validators=[helixweb.inventory.validators.validate_text],
                    ),
                ),
                (
                    "vram_bytes",
                    models.FloatField(validators=[helixweb.inventory.validators.validate_positive]),
                ),
                (
                    "max_layers",
                    models.PositiveIntegerField(
                        validators=[django.core.validators.MaxValueValidator(10000)]
                    ),
                ),
                (
                    "tokens_per_s",
                    models.JSONField(validators=[helixweb.inventory.validators.validate_curve]),
                ),
                (
                    "kv_capacity_token_layers",
                    models.JSONField(validators=[helixweb.inventory.validators.validate_curve]),
                ),
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
                        default="estimated",
                        max_length=10,
                    ),
                ),
                ("batch_limits", models.JSONField(blank=True, null=True)),
                ("layer_times", models.JSONField(blank=True, null=True)),
                (
                    "price_per_hour",
                    models.FloatField(
                        blank=True,
                        null=True,
                        validators=[helixweb.inventory.validators.validate_positive],
                    ),
                ),
                ("recorded_at", models.DateTimeField(auto_now=True, null=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="profiles",
                        to="inventory.cluster",
                    ),
                ),
                (
                    "model",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="profiles",
                        to="inventory.languagemodel",
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("cluster", "model", "name"),
                        name="profile_unique_in_cluster_and_model",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="RegionLink",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "source",
                    models.CharField(
                        max_length=64, validators=[helixweb.inventory.validators.validate_name]
                    ),
                ),
                (
                    "target",
                    models.CharField(
                        max_length=64, validators=[helixweb.inventory.validators.validate_name]
                    ),
                ),
                (
                    "bandwidth_bytes_per_s",
                    models.FloatField(validators=[helixweb.inventory.validators.validate_positive]),
                ),
                (
                    "latency_s",
                    models.FloatField(
                        validators=[helixweb.inventory.validators.validate_not_negative]
                    ),
                ),
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
                        default="estimated",
                        max_length=10,
                    ),
                ),
                ("recorded_at", models.DateTimeField(auto_now=True, null=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="region_links",
                        to="inventory.cluster",
                    ),
                ),
            ],
            options={
                "ordering": ["source", "target"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("cluster", "source", "target"), name="region_link_unique_in_cluster"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="SharedBandwidth",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "name",
                    models.CharField(
                        max_length=64, validators=[helixweb.inventory.validators.validate_name]
                    ),
                ),
                (
                    "members",
                    models.JSONField(validators=[helixweb.inventory.validators.validate_members]),
                ),
                (
                    "direction",
                    models.CharField(
                        choices=[("egress", "out of its members"), ("ingress", "into its members")],
                        max_length=8,
                    ),
                ),
                (
                    "scope",
                    models.CharField(
                        choices=[
                            ("region", "only what crosses the border of the members"),
                            ("nic", "also what members send each other"),
                        ],
                        max_length=8,
                    ),
                ),
                (
                    "bandwidth_bytes_per_s",
                    models.FloatField(validators=[helixweb.inventory.validators.validate_positive]),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="shared_bandwidths",
                        to="inventory.cluster",
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("cluster", "name"), name="shared_bandwidth_unique_in_cluster"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Change",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("kind", models.CharField(max_length=20)),
                ("row_id", models.BigIntegerField(default=0)),
                ("name", models.CharField(max_length=200)),
                (
                    "action",
                    models.CharField(
                        choices=[
                            ("added", "Added"),
                            ("changed", "Changed"),
                            ("removed", "Removed"),
                            ("noted", "Noted"),
                            ("refused", "Refused"),
                        ],
                        max_length=8,
                    ),
                ),
                ("text", models.TextField(blank=True)),
                ("actor", models.CharField(blank=True, max_length=150)),
                ("batch", models.UUIDField(null=True)),
                ("before", models.JSONField(null=True)),
                ("after", models.JSONField(null=True)),
                ("at", models.DateTimeField()),
                (
                    "cluster",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="changes",
                        to="inventory.cluster",
                    ),
                ),
            ],
            options={
                "ordering": ["-pk"],
                "indexes": [
                    models.Index(fields=["kind", "row_id"], name="change_of_row"),
                    models.Index(fields=["cluster", "kind"], name="change_in_cluster"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Link",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "source",
                    models.CharField(
                        max_length=64, validators=[helixweb.inventory.validators.validate_name]
                    ),
                ),
                (
                    "target",
                    models.CharField(
                        max_length=64, validators=[helixweb.inventory.validators.validate_name]
                    ),
                ),
                (
                    "bandwidth_bytes_per_s",
                    models.FloatField(validators=[helixweb.inventory.validators.validate_positive]),
                ),
                (
                    "latency_s",
                    models.FloatField(
                        validators=[helixweb.inventory.validators.validate_not_negative]
                    ),
                ),
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
                        default="estimated",
                        max_length=10,
                    ),
                ),
                ("recorded_at", models.DateTimeField(auto_now=True, null=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="links",
                        to="inventory.cluster",
                    ),
                ),
            ],
            options={
                "ordering": ["source", "target"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("cluster", "source", "target"), name="link_unique_in_cluster"
                    )
                ],
            },
        ),
    ]
