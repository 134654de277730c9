"""The addresses of pages, by name: what tests of the site in a browser must have opened."""

from collections.abc import Iterable

from django.urls import URLPattern, resolve

from helixweb.access import urls as access_urls
from helixweb.alerting import urls as alerting_urls
from helixweb.common import urls as common_urls
from helixweb.deployment import urls as deployment_urls
from helixweb.inventory import urls as inventory_urls
from helixweb.monitoring import urls as monitoring_urls
from helixweb.planning import urls as planning_urls

MODULES = (
    common_urls,
    access_urls,
    inventory_urls,
    planning_urls,
    deployment_urls,
    monitoring_urls,
    alerting_urls,
)
# For monitoring by others, the stream that the mark "Live" tells of, what scripts say, and where a
# provider of single sign-on sends people, if one is set.
NOT_FOR_PEOPLE = {"healthz", "readyz", "events", "texts", "metrics", "sso-begin", "sso-callback"}
# What buttons post to, and what scripts or htmx ask for: no pages of their own.
ANSWERS = {
    "user-log-out", "grant-withdraw", "group-delete", "session-end", "sessions-end",
    "changes-csv",
    "logout", "user-keep-out", "user-let-in", "api-key-revoke", "nodes-bulk", "nodes-csv",
    "join-token-revoke", "cluster-demo", "cluster-join", "cluster-export", "plan-run-preview",
    "plan-run-starts", "plan-run-node-rules", "plan-run-again", "plan-run-cancel",
    "plan-run-accept", "plan-run-extend", "replan-adopt", "plan-explanation", "plan-simulations",
    "simulation-cancel", "model-mix-cancel",
    "deployment-stop", "deployment-weights", "links-keep-measured", "node-log", "monitor-chart",
    "playground-chat", "repair-deploy", "repair-dismiss", "deployment-roll-back",
    "deployment-pause", "deployment-resume", "node-drain", "node-take-in",
    "alerts-bell", "alert-acknowledge", "alert-channel-test", "alert-channel-secret",
    "alert-silence-end", "alert-delivery-again",
    "cluster-measure", "node-measure", "node-measure-cancel", "profile-export",
    "profile-version-use", "model-read",
}  # fmt: skip


def all_names() -> set[str]:
    """Of every address below the root that is for people."""
    patterns = (pattern for module in MODULES for pattern in module.urlpatterns)
    names = {str(pattern.name) for pattern in patterns if isinstance(pattern, URLPattern)}
    return names - NOT_FOR_PEOPLE


def names_of(paths: Iterable[str]) -> set[str]:
    """Of the addresses that these paths lead to."""
    return {str(resolve(path).url_name) for path in paths}
