"""The addresses of the site's pages, with ids of rows by the words of `site_world`."""

from collections.abc import Iterable

from django.urls import resolve

from tests.helixweb.page_table import PAGES as NEEDS

PAGES = (
    "/", "/clusters/", "/clusters/new", "/clusters/import", "/clusters/{cluster}/",
    "/clusters/{trouble}/", "/clusters/{cluster}/edit", "/clusters/{spare}/delete",
    "/clusters/{cluster}/coordinators/{front}/delete", "/clusters/{cluster}/network/",
    "/clusters/{cluster}/network/?show=latency", "/clusters/{cluster}/links/new",
    "/clusters/{spare}/links/{spare_link}/edit", "/clusters/{spare}/links/{spare_link}/delete",
    "/clusters/{cluster}/region-links/new",
    "/clusters/{spare}/region-links/{spare_region_link}/edit",
    "/clusters/{spare}/region-links/{spare_region_link}/delete",
    "/clusters/{spare}/network/", "/clusters/{cluster}/shared-bandwidths/new",
    "/clusters/{spare}/shared-bandwidths/{shared}/edit",
    "/clusters/{spare}/shared-bandwidths/{shared}/delete", "/clusters/{cluster}/profiles/new",
    "/clusters/{cluster}/profiles/estimate",
    "/clusters/{spare}/profiles/{spare_profile}/delete", "/nodes/", "/nodes/?q=nobody",
    "/clusters/{cluster}/nodes/new", "/clusters/{cluster}/nodes/{node}/",
    "/clusters/{spare}/nodes/{spare_node}/", "/clusters/{cluster}/nodes/{node}/edit",
    "/clusters/{cluster}/nodes/{node}/delete", "/models/", "/models/new", "/models/{model}/",
    "/models/{own_model}/", "/models/{model}/edit", "/models/{model}/delete", "/profiles/",
    "/profiles/{profile}/", "/profiles/import", "/changes/", "/plans/", "/plans/new",
    "/plans/{run}/",
    "/plans/{running}/", "/plans/{replan_run}/", "/plans/{run}/incumbents/{incumbent}/",
    "/plans/by-id/{plan}/what-if", "/plans/by-id/{plan}/replan",
    "/plans/compare?plan={plan}&plan={second_plan}", "/plans/mixes/new/{cluster}",
    "/plans/mixes/{mix}/", "/deployments/", "/deployments/new?plan={plan}",
    "/deployments/{deployment}/", "/deployments/{deployment}/predictions/",
    "/deployments/{failing}/", "/plans/{instances_run}/", "/deployments/{instances}/",
    "/clusters/{instances_cluster}/nodes/{instances_node}/", "/monitor/?cluster={cluster}&range=1h",
    "/requests/", "/requests/{request}/", "/alerts/", "/alerts/rules/",
    "/alerts/rules/new/{cluster}", "/alerts/rules/{alert_rule}/",
    "/alerts/rules/{alert_rule}/delete", "/alerts/channels/", "/alerts/channels/new/{cluster}",
    "/alerts/channels/{alert_channel}/", "/alerts/channels/{alert_channel}/delete",
    "/alerts/silences/", "/alerts/silences/new/{cluster}", "/alerts/deliveries/",
    "/playground/", "/settings/", "/settings/users/", "/settings/users/{person}/",
    "/settings/groups/", "/settings/groups/{group}/", "/settings/sessions/",
    "/clusters/{cluster}/access/",
    "/settings/api-keys/", "/settings/join-tokens/", "/settings/jobs/", "/settings/about/",
    "/api/docs/",
)  # fmt: skip
# Of a cluster of 24 nodes, in a world that has one.
LARGE = (
    "/?cluster={large}", "/clusters/{large}/", "/clusters/{large}/network/",
    "/clusters/{large}/network/?from=region-0&to=region-0", "/clusters/{large}/nodes/{large_node}/",
    "/plans/{large_run}/", "/deployments/{large_deployment}/",
    "/monitor/?cluster={large}&range=1h",
)  # fmt: skip
# On the day the site is new: what says that there is nothing yet, and what to do.
EMPTY = (
    "/", "/clusters/", "/nodes/", "/models/", "/profiles/", "/changes/", "/plans/", "/plans/new",
    "/deployments/", "/monitor/", "/requests/", "/alerts/", "/alerts/rules/",
    "/alerts/channels/", "/alerts/silences/", "/alerts/deliveries/",
    "/playground/", "/settings/api-keys/", "/settings/join-tokens/", "/settings/jobs/",
)  # fmt: skip


# Of the table of all pages, without those for monitoring, single sign-on and scripts.
FOR_PEOPLE = {*NEEDS, "login", "login-link"} - {"api-docs", "events", "texts"}
# What buttons post to, and what scripts or htmx ask for: no pages of their own.
ANSWERS = {name for name, (look, _) in NEEDS.items() if look is None} | {
    "alerts-bell", "changes-csv", "cluster-export", "monitor-chart", "node-log", "nodes-csv",
    "plan-explanation", "plan-run-node-rules", "plan-run-preview", "plan-run-starts",
    "plan-simulations", "profile-export",
}  # fmt: skip


def names_of(paths: Iterable[str]) -> set[str]:
    """Of the addresses that these paths lead to."""
    return {str(resolve(path).url_name) for path in paths}
