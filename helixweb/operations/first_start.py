"""First start of a site: creates a log-in link and an endpoint."""

from typing import Any

from django.contrib.auth import get_user_model
from django.db import transaction

from helixweb.access import people
from helixweb.common.actor import commanding
from helixweb.inventory.models import Cluster, JoinToken
from helixweb.inventory.services import joining, presence, records

COMMAND = "helixweb up"
FIRST_USER = "admin"
FIRST_CLUSTER = "main"


def login_link(username: str) -> str:
    """The path of a one-time link for `username`, or for the first user as long as no user has ever
    logged in; else empty: what `up` prints ends in logs."""
    if not username and get_user_model().objects.filter(last_login__isnull=False).exists():
        return ""
    with commanding(COMMAND):
        user = people.administrator(username) if username else _administrator()
        return people.login_path(user)


def is_joined(credential: str) -> bool:
    """The site knows it: not once its cluster was removed, or an older backup restored."""
    return presence.authenticate_agent(credential) is not None


def coordinator_token(name: str, *, former: str = "") -> dict[str, Any]:
    """A join token for a coordinator of cluster `name`; empty: of the one that it was in, if there
    is one of that name, else of the first, which is made if there is none."""
    with commanding(COMMAND):
        cluster = Cluster.unscoped.filter(name=name or former).first() or _cluster(name)
        token = joining.create_join_token(cluster, JoinToken.Role.COORDINATOR, _administrator())
    return {"cluster": cluster.name, "coordinator_token": token.secret}


def _cluster(name: str) -> Cluster:
    found = Cluster.unscoped.order_by("pk")
    if name:
        found = found.filter(name=name)
    with transaction.atomic():
        return found.first() or records.create(Cluster, name=name or FIRST_CLUSTER)


def _administrator() -> Any:
    """The first administrator, made if there is none."""
    users = get_user_model().objects
    found = users.filter(is_superuser=True, is_active=True).order_by("pk").first()
    return found or people.administrator(FIRST_USER)
