import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


def keep_what_people_could(apps, schema_editor):
    """Whoever was known could do everything but govern others; superusers still may do all."""
    app, _, name = settings.AUTH_USER_MODEL.partition(".")
    grants = apps.get_model("access", "Grant").objects
    for user in apps.get_model(app, name).objects.filter(is_superuser=False):
        grants.create(user_id=user.pk, cluster=None, role="operator")


class Migration(migrations.Migration):
    initial = True
    replaces = [
        ("access", "0001_roles"),
        ("access", "0002_identities"),
    ]

    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("inventory", "0002_since_0_1_0"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Grant",
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
                        choices=[
                            ("viewer", "viewer"),
                            ("operator", "operator"),
                            ("admin", "administrator"),
                        ],
                        max_length=10,
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="grants",
                        to="inventory.cluster",
                    ),
                ),
                (
                    "group",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="grants",
                        to="auth.group",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="grants",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["pk"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("group__isnull", True), ("user__isnull", False)),
                            models.Q(("group__isnull", False), ("user__isnull", True)),
                            _connector="OR",
                        ),
                        name="grant_of_a_user_or_of_a_group",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("cluster__isnull", False), ("user__isnull", False)),
                        fields=("user", "cluster"),
                        name="grant_one_of_user_on_cluster",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("cluster__isnull", False), ("group__isnull", False)),
                        fields=("group", "cluster"),
                        name="grant_one_of_group_on_cluster",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("cluster__isnull", True), ("user__isnull", False)),
                        fields=("user",),
                        name="grant_one_of_user_on_site",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("cluster__isnull", True), ("group__isnull", False)),
                        fields=("group",),
                        name="grant_one_of_group_on_site",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Identity",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("issuer", models.CharField(max_length=300)),
                ("subject", models.CharField(max_length=255)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("issuer", "subject"), name="identity_of_one_user"
                    )
                ],
            },
        ),
        migrations.RunPython(keep_what_people_could, migrations.RunPython.noop),
    ]
