"""What people do about links that do other than planned."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_POST

from helixweb.deployment.keeping import keep_measured
from helixweb.deployment.models import SERVING, Deployment
from helixweb.deployment.weighing import hold_weights
from helixweb.inventory.models import Cluster


@require_POST
def deployment_weights(request: HttpRequest, pk: int) -> HttpResponse:
    """`held=1`: route by the plan's weights whatever links do; else follow them again."""
    row = get_object_or_404(Deployment.objects.defer("serving_plan"), pk=pk, status__in=SERVING)
    held = request.POST.get("held") == "1"
    hold_weights(row, held=held, user=request.user, now=timezone.now())
    return redirect("network", row.cluster_id)


@require_POST
def links_keep_measured(request: HttpRequest, pk: int) -> HttpResponse:
    """For the next plan."""
    cluster = get_object_or_404(Cluster, pk=pk)
    kept = keep_measured(cluster, now=timezone.now())
    if kept:
        messages.success(
            request,
            ngettext(
                "%(rates)s measured rate counts in the next plan; the history has what was there "
                "before.",
                "%(rates)s measured rates count in the next plan; the history has what was there "
                "before.",
                kept,
            )
            % {"rates": kept},
        )
    else:
        messages.info(request, _("No link is measured to be slow now; nothing was changed."))
    return redirect("network", pk)
