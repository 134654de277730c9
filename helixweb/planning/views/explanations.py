"""The card that explains a plan."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from helixweb.common.refusals import Conflict
from helixweb.planning.models import Plan
from helixweb.planning.presentation import explanation_of, num_node_kinds
from helixweb.planning.services import explaining
from helixweb.planning.study_forms import ExplanationForm


def explanation_context(plan: Plan) -> dict[str, Any]:
    """What the card shows."""
    explanation = explanation_of(plan)
    return {
        "explanation": explanation,
        "limits": explanation.limits if explanation else (),
        "explanation_form": ExplanationForm(),
        "num_node_kinds": num_node_kinds(plan),
    }


@require_http_methods(["GET", "POST"])
def explanation(request: HttpRequest, pk: int) -> HttpResponse:
    """GET: the card, which htmx swaps in. POST: have the plan explained anew."""
    plan = get_object_or_404(Plan.objects.defer("problem", "document"), pk=pk)
    if request.method == "GET":
        context = {"plan": plan, **explanation_context(plan)}
        return render(request, "planning/_explanation.html", context)
    form = ExplanationForm(request.POST)
    if not form.is_valid():
        for text in form.errors.get("search_s", []):
            messages.error(request, _("Seconds for each kind: %(text)s") % {"text": text})
    else:
        try:
            explaining.explain_anew(plan, search_s=form.cleaned_data["search_s"])
        except Conflict as error:
            messages.info(request, str(error))
    return redirect("plan-run", plan.run_id) if plan.run_id else redirect("plan-runs")
