"""Pages of mixes: several models planned on one cluster."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _

from helixweb.access.needs import OPERATOR, VIEWER, needs
from helixweb.common import events, jobs
from helixweb.common.page_refusals import refusals_shown
from helixweb.inventory.models import Cluster
from helixweb.planning.forms import MixForm
from helixweb.planning.models import ModelMix
from helixweb.planning.services import mixing


@needs(OPERATOR, OPERATOR, of=Cluster, by="cluster_pk")
def mix_new(request: HttpRequest, cluster_pk: int) -> HttpResponse:
    """Choose weights for the models that the cluster has profiles for; POST starts and shows it."""
    cluster = get_object_or_404(Cluster.objects.within(request), pk=cluster_pk)
    form = MixForm(request.POST if request.method == "POST" else None, cluster=cluster)
    if form.is_valid():
        with refusals_shown(request, form):
            mix = mixing.start_model_mix(
                cluster=cluster,
                weights=form.weights(),
                options=form.plan_options(),
                user=request.user,
            )
            return redirect("model-mix", mix.pk)
    status = 422 if form.is_bound else 200
    context = {"cluster": cluster, "form": form, "weights": form.weight_fields()}
    return render(request, "planning/mix_new.html", context, status=status)


@needs(VIEWER, of=ModelMix)
def mix(request: HttpRequest, pk: int) -> HttpResponse:
    """How far it is, and the plan of each model once it has ended."""
    last_event_id = events.latest_id()
    row = get_object_or_404(
        ModelMix.objects.within(request).select_related("cluster", "created_by"), pk=pk
    )
    context = {
        "mix": row,
        "shares": row.shares.select_related("model").defer("problem"),
        "runs": row.runs.select_related("model", "plan")
        .defer("problem", "plan__problem")
        .order_by("pk"),
        "last_event_id": last_event_id,
    }
    is_swap = request.headers.get("HX-Request") == "true"
    return render(request, f"planning/{'_mix' if is_swap else 'mix'}.html", context)


@needs(change=OPERATOR, of=ModelMix)
def mix_cancel(request: HttpRequest, pk: int) -> HttpResponse:
    """End the search with what it has."""
    row = get_object_or_404(ModelMix.objects.within(request), pk=pk)
    if not jobs.cancel(row):
        messages.info(request, _("The search had ended already."))
    return redirect("model-mix", pk)
