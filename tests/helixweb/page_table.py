"""What every page needs to be looked at and to be posted to, apart from the code that asks for it.

The words are those of `role_table.py`.
"""

from tests.helixweb.role_table import Need

# For monitoring by others, and how one gets credentials.
NOT_ASKED = {
    "healthz", "readyz", "metrics", "login", "login-link", "sso-begin", "sso-callback",
    "join-script", "join-source",
}  # fmt: skip

_PAGES: dict[tuple[Need, Need], tuple[str, ...]] = {
    ("operator", "operator"): (
        "alert-channel-delete", "alert-channel-edit", "alert-channel-new", "alert-channels",
        "alert-deliveries", "alert-rule-delete", "alert-rule-edit", "alert-rule-new",
        "alert-silence-new", "cluster-edit", "coordinator-delete", "deployment-new", "link-delete",
        "link-edit", "link-new", "model-mix-new", "node-delete", "node-edit", "node-new",
        "plan-run-new", "profile-delete", "profile-estimate", "profile-import", "profile-new",
        "replan", "region-link-delete", "region-link-edit", "region-link-new",
        "shared-bandwidth-delete", "shared-bandwidth-edit", "shared-bandwidth-new", "what-if",
    ),
    ("own", "own"): (
        "api-docs", "api-key-revoke", "api-keys", "events", "logout", "session-end", "sessions",
        "sessions-end", "settings", "texts",
    ),
    ("site-admin", "site-admin"): (
        "group-delete",
    ),
    ("site-operator", "site-operator"): (
        "cluster-import", "cluster-new", "model-delete", "model-edit", "model-new",
    ),
    ("site-viewer", "site-admin"): (
        "group", "groups", "user", "users",
    ),
    ("viewer", "admin"): (
        "cluster-access", "grant-withdraw",
    ),
    ("viewer", "operator"): (
        "about", "alert-acknowledge", "alert-channel-secret", "alert-channel-test",
        "alert-delivery-again", "alert-rules", "alert-silence-end", "alert-silences", "alerts",
        "alerts-bell", "changes", "changes-csv", "cluster", "cluster-export", "cluster-join",
        "cluster-measure", "clusters",
        "deployment", "deployment-pause", "deployment-resume", "deployment-roll-back",
        "deployment-stop", "deployment-weights", "deployments", "incumbent", "jobs",
        "join-token-revoke", "join-tokens", "links-keep-measured", "model", "model-mix",
        "model-mix-cancel", "models", "monitor", "monitor-chart", "network", "node", "node-drain",
        "node-log", "node-measure", "node-measure-cancel", "node-take-in", "nodes", "nodes-bulk",
        "nodes-csv", "overview", "plan-explanation", "plan-run", "plan-run-accept",
        "plan-run-again", "plan-run-cancel", "plan-run-extend", "plan-run-node-rules",
        "plan-run-preview", "plan-run-starts", "plan-runs",
        "plan-simulations", "plans-compare", "playground", "predictions", "profile",
        "profile-export", "profile-version-use", "profiles", "repair-deploy",
        "repair-dismiss", "replan-adopt", "request", "requests", "simulation-cancel",
    ),
    ("viewer", "site-admin"): (
        "user-keep-out", "user-let-in", "user-log-out",
    ),
    ("viewer", "site-operator"): (
        "cluster-demo", "model-read",
    ),
    ("viewer", "viewer"): (
        "playground-chat",
    ),
    (("admin", "site-operator"), ("admin", "site-operator")): (
        "cluster-delete",
    ),
}  # fmt: skip
PAGES = {name: needs for needs, names in _PAGES.items() for name in names}
