import django.db.models.deletion
from django.db import migrations, models

import helixweb.inventory.validators


class Migration(migrations.Migration):
    dependencies = [
        ("inventory", "0004_heads_of_models"),
    ]

    operations = [
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
    ]
