"""Template tags for names of plans, and forecasts in sentences: {% load plans %}."""

from django import template
from django.template.defaultfilters import floatformat
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from helixweb.charts.chart import duration_text
from helixweb.planning.models import Plan
from helixweb.planning.templatetags.humanize_numbers import tokens_per_s
from planner import PlanForecast, SimulatedFigures

register = template.Library()


@register.filter
def plan_link(plan: Plan) -> SafeString:
    """The name of a plan, as a link to the search that found it if there is one."""
    name = _("plan %(id)s") % {"id": plan.pk}
    if plan.run_id is None:
        return format_html("{}", name)
    return format_html('<a href="{}">{}</a>', reverse("plan-run", args=[plan.run_id]), name)


@register.filter
def estimate_in_words(forecast: PlanForecast) -> str:
    """The workload of a forecast, and the estimate for it."""
    estimated = forecast.estimated
    return _(
        "Prompts of %(mean_prompt_tokens)s and outputs of %(mean_output_tokens)s tokens on"
        " average, spread like published conversations. Estimate, requests always waiting:"
        " %(decode_tokens_per_s)s decode tokens/s, TTFT %(ttft_s)s, TPOT %(tpot_s)s,"
        " %(requests_in_flight)s requests in flight."
    ) % {
        "mean_prompt_tokens": floatformat(forecast.mean_prompt_tokens, 0),
        "mean_output_tokens": floatformat(forecast.mean_output_tokens, 0),
        "decode_tokens_per_s": tokens_per_s(estimated.decode_tokens_per_s),
        "ttft_s": duration_text(estimated.ttft_s),
        "tpot_s": duration_text(estimated.tpot_s),
        "requests_in_flight": floatformat(estimated.requests_in_flight, 0),
    }


@register.filter
def simulation_in_words(found: SimulatedFigures) -> str:
    """A sentence on the simulations of a search and their result."""
    conditions = {"seeds": ", ".join(str(seed) for seed in found.seeds)}
    if found.requests_per_s is None:
        simulated = ngettext(
            "Simulated (seed %(seeds)s):", "Simulated (seeds %(seeds)s):", len(found.seeds)
        )
    else:
        conditions["rate"] = floatformat(found.requests_per_s, "-3")
        simulated = ngettext(
            "Simulated (seed %(seeds)s, %(rate)s requests/s):",
            "Simulated (seeds %(seeds)s, %(rate)s requests/s):",
            len(found.seeds),
        )
    figures = _(
        "%(decode_tokens_per_s)s decode and %(prompt_tokens_per_s)s prompt tokens/s,"
        " TTFT %(p50_s)s (p95 %(p95_s)s), TPOT %(tpot_p50_s)s (p95 %(tpot_p95_s)s)."
    ) % {
        "decode_tokens_per_s": tokens_per_s(found.decode_tokens_per_s),
        "prompt_tokens_per_s": tokens_per_s(found.prompt_tokens_per_s),
        "p50_s": duration_text(found.ttft.p50_s),
        "p95_s": duration_text(found.ttft.p95_s),
        "tpot_p50_s": duration_text(found.tpot.p50_s),
        "tpot_p95_s": duration_text(found.tpot.p95_s),
    }
    return f"{simulated % conditions} {figures}"
