"""Which roles people and groups have, on the site and on clusters."""

from django.conf import settings
from django.db import models
from django.db.models import Q

from helixweb.access.roles import Role


class Grant(models.Model):
    """A role of a user or of a group, on one cluster; without one on the whole site.

    A superuser is an administrator of the site without any row.
    """

    cluster_path = "cluster"

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="grants"
    )
    group = models.ForeignKey(
        "auth.Group", null=True, on_delete=models.CASCADE, related_name="grants"
    )
    cluster = models.ForeignKey(
        "inventory.Cluster", null=True, on_delete=models.CASCADE, related_name="grants"
    )
    role = models.CharField(max_length=10, choices=Role.choices)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.CheckConstraint(
                condition=Q(user__isnull=False, group__isnull=True)
                | Q(user__isnull=True, group__isnull=False),
                name="grant_of_a_user_or_of_a_group",
            ),
            models.UniqueConstraint(
                fields=["user", "cluster"],
                name="grant_one_of_user_on_cluster",
                condition=Q(user__isnull=False, cluster__isnull=False),
            ),
            models.UniqueConstraint(
                fields=["group", "cluster"],
                name="grant_one_of_group_on_cluster",
                condition=Q(group__isnull=False, cluster__isnull=False),
            ),
            models.UniqueConstraint(
                fields=["user"],
                name="grant_one_of_user_on_site",
                condition=Q(user__isnull=False, cluster__isnull=True),
            ),
            models.UniqueConstraint(
                fields=["group"],
                name="grant_one_of_group_on_site",
                condition=Q(group__isnull=False, cluster__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.role} {self.holder} on {self.cluster or 'the site'}"

    @property
    def holder(self) -> str:
        """The name of the user or group that has it."""
        return str(self.user or self.group)


class Identity(models.Model):
    """A user's identity at a provider of single sign-on."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    issuer = models.CharField(max_length=300)
    subject = models.CharField(max_length=255)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["issuer", "subject"], name="identity_of_one_user")
        ]

    def __str__(self) -> str:
        return f"{self.user} by {self.issuer}"
