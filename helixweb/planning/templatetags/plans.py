"""How pages name plans: {% load plans %}."""

from django import template
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from helixweb.planning.models import Plan

register = template.Library()


@register.filter
def plan_link(plan: Plan) -> SafeString:
    """The name of a plan, as a link to the search that found it if there is one."""
    name = _("plan %(id)s") % {"id": plan.pk}
    if plan.run_id is None:
        return format_html("{}", name)
    return format_html('<a href="{}">{}</a>', reverse("plan-run", args=[plan.run_id]), name)
