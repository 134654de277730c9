"""What people do about links that do other than planned."""

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_POST

from helixweb.deployment.link_view import LinkRow, links_at_work
from helixweb.deployment.models import SERVING, Deployment
from helixweb.deployment.weighing import hold_weights
from helixweb.inventory import services as inventory
from helixweb.inventory.models import Cluster, Link, Origin
from helixweb.inventory.presentation import cluster_network


@require_POST
def deployment_weights(request: HttpRequest, pk: int) -> HttpResponse:
    """`held=1`: route by the plan's weights whatever links do; else follow them again."""
    row = get_object_or_404(Deployment.objects.defer("serving_plan"), pk=pk, status__in=SERVING)
    held = request.POST.get("held") == "1"
    hold_weights(row, held=held, user=request.user, now=timezone.now())
    return redirect("network", row.cluster_id)


@require_POST
def links_keep_measured(request: HttpRequest, pk: int) -> HttpResponse:
    """Write the measured rates of slow links into the inventory, for the next plan.

    What they were before stays in the history of changes.
    """
    cluster = get_object_or_404(Cluster, pk=pk)
    found = links_at_work(cluster_id=cluster.pk, now=timezone.now())
    slow = [row for row in found.rows if row.slow] if found else []
    with transaction.atomic():
        for row in slow:
            _keep(cluster, row)
    if slow:
        messages.success(
            request,
            ngettext(
                "%(rates)s measured rate counts in the next plan; the history has what was there "
                "before.",
                "%(rates)s measured rates count in the next plan; the history has what was there "
                "before.",
                len(slow),
            )
            % {"rates": len(slow)},
        )
    else:
        messages.info(request, _("No link is measured to be slow now; nothing was changed."))
    return redirect("network", pk)


def _keep(cluster: Cluster, row: LinkRow) -> None:
    known = cluster_network(cluster).link(row.source, row.target)
    measured = {
        "bandwidth_bytes_per_s": row.stats.bandwidth_bytes_per_s,
        "origin": Origin.MEASURED,
    }
    own = Link.objects.filter(cluster=cluster, source=row.source, target=row.target).first()
    if own is not None:
        inventory.update(own, **measured)
    elif known is not None:
        inventory.create(
            Link,
            cluster=cluster,
            source=row.source,
            target=row.target,
            latency_s=known.latency_s,
            **measured,
        )
