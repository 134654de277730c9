"""Which role an operation needs: one table for pages and for the REST API.

An operation is the name of a URL and a method. What stands in no row needs a viewer to look and
an operator to change, on the cluster that its row belongs to.
"""

from dataclasses import dataclass
from typing import NamedTuple

from helixweb.access.roles import Role

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """The role on the row's cluster, or on the site if `of_site`; None: to be logged in.

    `or_of_site`: this one on the site does as well.
    """

    role: Role | None
    of_site: bool = False
    or_of_site: Role | None = None


class Row(NamedTuple):
    """What an address names: a row of `model` by the URL's argument `argument`."""

    model: str
    argument: str = "pk"


LOOK = Need(role=Role.VIEWER)
CHANGE = Need(role=Role.OPERATOR)
LOGGED_IN = Need(role=None)
LOOK_AT_SITE = Need(role=Role.VIEWER, of_site=True)
CHANGE_SITE = Need(role=Role.OPERATOR, of_site=True)
GOVERN = Need(role=Role.ADMIN)
GOVERN_SITE = Need(role=Role.ADMIN, of_site=True)
# Whoever may make clusters may also unmake them.
DELETE_CLUSTER = Need(role=Role.ADMIN, or_of_site=Role.OPERATOR)

# A person's own things; a key may look at them, and with the scope `admin` change them.
OWN = frozenset(
    {
        "settings", "texts", "logout", "api-keys", "api-key-revoke", "sessions", "sessions-end",
        "session-end", "api-key-list", "api-key-detail", "api-session-list", "api-session-detail",
        "api-session-end-others", "api-me",
        "events", "api-events",  # every topic is looked at by itself
        "api-docs", "schema",
    }
)  # fmt: skip
# By the name of a URL; what its safe methods need, and what the others do.
_LOOKING = {
    name: LOOK_AT_SITE
    for name in (
        "users", "user", "groups", "group", "api-user-list", "api-user-detail", "api-group-list",
        "api-group-detail",
    )
} | {
    "api-grant-list": GOVERN, "api-grant-detail": GOVERN,
    **dict.fromkeys(("what-if", "replan", "profile-estimate"), CHANGE),  # forms
    # The address of a webhook often holds a key of its own.
    **dict.fromkeys(
        (
            "alert-channels", "alert-deliveries", "api-alert-channel-list",
            "api-alert-channel-detail",
        ),
        CHANGE,
    ),
}  # fmt: skip
_CHANGING = {
    # The row is named in the body, and looked up within reach.
    "playground-chat": LOOK,
    **dict.fromkeys(
        (
            "users", "user", "user-keep-out", "user-let-in", "user-log-out", "groups", "group",
            "group-delete", "api-user-list", "api-user-detail", "api-user-login-link",
            "api-user-log-out", "api-group-list", "api-group-detail",
        ),
        GOVERN_SITE,
    ),
    **dict.fromkeys(
        ("cluster-access", "grant-withdraw", "api-grant-list", "api-grant-detail"), GOVERN
    ),
    **dict.fromkeys(
        (
            "cluster-new", "cluster-demo", "cluster-import", "api-cluster-list",
            "api-cluster-import-problem", "api-cluster-demo", "api-cluster-batch", "model-new",
            "model-read", "model-edit", "model-delete", "api-model-list", "api-model-detail",
            "api-model-batch",
        ),
        CHANGE_SITE,
    ),
    "cluster-delete": DELETE_CLUSTER,
}  # fmt: skip
_BY_METHOD = {("api-cluster-detail", "DELETE"): DELETE_CLUSTER}
# Pages that show a form: for those who may send it.
_FORMS = ("-new", "-edit", "-delete", "-import")

# Whose row an address below the root is about, by how its route begins; the longest that fits.
_ROWS = {
    "clusters/<int:pk>/": Row("inventory.Cluster"),
    "settings/join-tokens/<int:pk>/": Row("inventory.JoinToken"),
    "settings/grants/<int:pk>/": Row("access.Grant"),
    "profiles/<int:pk>/": Row("inventory.Profile"),
    "plans/<int:pk>/": Row("planning.PlanRun"),
    "plans/by-id/<int:pk>/": Row("planning.Plan"),
    "plans/simulations/<int:pk>/": Row("planning.Simulation"),
    "plans/mixes/<int:pk>/": Row("planning.ModelMix"),
    "plans/mixes/new/<int:cluster_pk>": Row("inventory.Cluster", "cluster_pk"),
    "deployments/<int:pk>/": Row("deployment.Deployment"),
    "repairs/<int:pk>/": Row("deployment.Repair"),
    "alerts/<int:pk>/": Row("alerting.Alert"),
    "alerts/rules/<int:pk>/": Row("alerting.AlertRule"),
    "alerts/channels/<int:pk>/": Row("alerting.Channel"),
    "alerts/silences/<int:pk>/": Row("alerting.Silence"),
    "alerts/deliveries/<int:pk>/": Row("alerting.Delivery"),
    **{
        f"alerts/{what}/new/<int:cluster_pk>": Row("inventory.Cluster", "cluster_pk")
        for what in ("rules", "channels", "silences")
    },
    "api/v1/clusters/<int:pk>/": Row("inventory.Cluster"),
    "api/v1/deployments/<int:pk>/": Row("deployment.Deployment"),
    "api/v1/nodes/<int:pk>/": Row("inventory.Node"),
}
# Rows that the body of a REST request may name, by its key.
NAMED_IN_BODIES = {
    "cluster": "inventory.Cluster",
    "node": "inventory.Node",
    "nodes": "inventory.Node",
    "plan": "planning.Plan",
    "start_plan": "planning.Plan",
    "deployment": "deployment.Deployment",
    "profile": "inventory.Profile",
    "rule": "alerting.AlertRule",
    "channels": "alerting.Channel",
}


def need_of(name: str, method: str) -> Need:
    """What the operation asks of whoever does it."""
    if (name, method) in _BY_METHOD:
        return _BY_METHOD[name, method]
    if name in OWN:
        return LOGGED_IN
    if method in SAFE and not (name.endswith(_FORMS) and not name.startswith("api-")):
        return _LOOKING.get(name, LOOK)
    return _CHANGING.get(name, CHANGE)


def row_of(route: str) -> Row | None:
    """Whose row a page is about; None: of no one row."""
    fitting = [start for start in _ROWS if route.startswith(start)]
    return _ROWS[max(fitting, key=len)] if fitting else None
