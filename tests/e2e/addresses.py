"""The addresses of pages, by name: what tests of the site in a browser must have opened."""

from collections.abc import Iterable

from django.urls import resolve

from tests.helixweb.page_table import PAGES as NEEDS

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
