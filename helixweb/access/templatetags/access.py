"""Tags and filters: what the reader of a page may do, and where a user is logged in."""

import re
from urllib.parse import urlsplit

from django import template
from django.urls import resolve

from helixweb.access import gate
from helixweb.access.roles import NO_ROLE, Role
from helixweb.access.scope import rights_of_request

register = template.Library()

# What the header `User-Agent` says, the most particular first: nearly all say Chrome and Safari.
_BROWSERS = (
    (r"Edg[A-Z]*/", "Edge"), (r"OPR/", "Opera"), (r"Firefox/", "Firefox"),
    (r"Chrome/", "Chrome"), (r"Version/(?=.*Safari/)", "Safari"),
)  # fmt: skip
_SYSTEMS = (
    ("Android", "Android"), ("iPhone", "iOS"), ("iPad", "iPadOS"), ("Windows", "Windows"),
    ("Mac OS X", "macOS"), ("CrOS", "ChromeOS"), ("Linux", "Linux"),
)  # fmt: skip


@register.filter
def browser_in_words(header: str) -> str:
    """`Chrome 156, Linux` of a `User-Agent`; one that is of no known browser as it is."""
    for pattern, name in _BROWSERS:
        if found := re.search(rf"{pattern}(\d+)", header):
            system = next((word for mark, word in _SYSTEMS if mark in header), "")
            return f"{name} {found[1]}{', ' if system else ''}{system}"
    return header


@register.simple_block_tag(takes_context=True)
def may(
    context: template.Context, content: str, name: str, cluster: int | None = None,
    *, method: str = "POST",
) -> str:  # fmt: skip
    """Show the content to readers who may do that: the URL of this name, with this method, on this
    cluster; without one, on any. It asks what the gate asks."""
    request = context.get("request")
    if request is None or gate.would_admit(request, name, method=method, cluster=cluster):
        return content
    return ""


@register.simple_tag(takes_context=True)
def allowed(context: template.Context, name: str, cluster: int | None = None) -> bool:
    """As `may`, but sets a variable: `{% allowed 'x' pk as changes %}`."""
    request = context.get("request")
    return request is None or gate.would_admit(request, name, method="POST", cluster=cluster)


@register.simple_tag(takes_context=True)
def may_open(context: template.Context, address: str, method: str = "GET") -> bool:
    """True if the requester may send that method to the page at that address of this site."""
    request = context.get("request")
    if request is None or not address:
        return True
    match = resolve(urlsplit(address).path)
    cluster = gate.cluster_of_row(match, is_cluster=True)
    return gate.would_admit(request, match.func, method=method, cluster=cluster)


@register.simple_tag(takes_context=True)
def own_role(context: template.Context) -> Role | None:
    """The reader's highest role on the page's cluster, or anywhere; None: no role."""
    request = context.get("request")
    if request is None or not request.user.is_authenticated:
        return None
    rights = rights_of_request(request)
    match = request.resolver_match
    cluster = match and gate.cluster_of_row(match, is_cluster=True)
    rank = rights.highest if cluster is None else rights.on(cluster)
    return next((role for role in Role if role.rank == rank and rank > NO_ROLE), None)
