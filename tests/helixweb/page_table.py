"""What every page needs to be looked at and to be posted to, apart from the code that asks for it.

The words are those of `role_table.py`; None: the page does not answer that method.
"""

from tests.helixweb.role_table import Need

# For monitoring by others, and how one gets credentials.
NOT_ASKED = {
    "healthz", "readyz", "metrics", "login", "login-link", "sso-begin", "sso-callback",
    "join-script", "join-source",
}  # fmt: skip

_PAGES: dict[tuple[Need | None, Need | None], tuple[str, ...]] = {
    ("operator", "operator"): (
        "alert-channel-delete", "alert-channel-edit", "alert-channel-new", "alert-rule-delete",
        "alert-rule-edit", "alert-rule-new", "alert-silence-new", "cluster-edit",
        "coordinator-delete", "deployment-new", "link-delete", "link-edit", "link-new",
        "model-mix-new", "node-delete", "node-edit", "node-new", "plan-run-new",
        "profile-delete", "profile-estimate", "profile-import", "profile-new",
        "region-link-delete", "region-link-edit", "region-link-new", "replan",
        "shared-bandwidth-delete", "shared-bandwidth-edit", "shared-bandwidth-new", "what-if",
    ),
    ("operator", None): (
        "alert-channels", "alert-deliveries",
    ),
    ("own", "own"): (
        "api-keys", "settings",
    ),
    ("own", None): (
        "api-docs", "events", "sessions", "texts",
    ),
    ("site-operator", "site-operator"): (
        "cluster-import", "cluster-new", "model-delete", "model-edit", "model-new",
    ),
    ("site-viewer", "site-admin"): (
        "group", "groups", "user", "users",
    ),
    ("viewer", "admin"): (
        "cluster-access",
    ),
    ("viewer", "operator"): (
        "plan-explanation", "plan-simulations",
    ),
    ("viewer", None): (
        "about", "alert-rules", "alert-silences", "alerts", "alerts-bell", "changes",
        "changes-csv", "cluster", "cluster-export", "clusters", "deployment", "deployments",
        "incumbent", "jobs", "join-tokens", "model", "model-mix", "models", "monitor",
        "monitor-chart", "network", "node", "node-log", "nodes", "nodes-csv", "overview",
        "plan-run", "plan-run-node-rules", "plan-run-preview", "plan-run-starts", "plan-runs",
        "plans-compare", "playground", "predictions", "profile", "profile-export", "profiles",
        "request", "requests",
    ),
    (("admin", "site-operator"), ("admin", "site-operator")): (
        "cluster-delete",
    ),
    (None, "admin"): (
        "grant-withdraw",
    ),
    (None, "operator"): (
        "alert-acknowledge", "alert-channel-secret", "alert-channel-test",
        "alert-delivery-again", "alert-silence-end", "cluster-join", "cluster-measure",
        "deployment-pause", "deployment-resume", "deployment-roll-back", "deployment-stop",
        "deployment-weights", "join-token-revoke", "links-keep-measured", "model-mix-cancel",
        "node-drain", "node-measure", "node-measure-cancel", "node-take-in", "nodes-bulk",
        "plan-run-accept", "plan-run-again", "plan-run-cancel", "plan-run-extend",
        "profile-version-use", "repair-deploy", "repair-dismiss", "replan-adopt",
        "simulation-cancel",
    ),
    (None, "own"): (
        "api-key-revoke", "logout", "session-end", "sessions-end",
    ),
    (None, "site-admin"): (
        "group-delete", "user-keep-out", "user-let-in", "user-log-out",
    ),
    (None, "site-operator"): (
        "cluster-demo", "model-read",
    ),
    (None, "viewer"): (
        "playground-chat",
    ),
}  # fmt: skip
PAGES = {name: needs for needs, names in _PAGES.items() for name in names}
