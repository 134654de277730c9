"""Several plans side by side: what they deliver, and which layers lie elsewhere."""

from collections.abc import Sequence
from typing import Any

from django.utils.translation import gettext as _

from helixweb.common.queries import parsed_id
from helixweb.planning.expected import offline_simulations
from helixweb.planning.forecasts import objective_words
from helixweb.planning.models import Plan
from helixweb.planning.services.studies import forecast_from_json
from helixweb.planning.stored import stored_plan, stored_problem
from planner import Forecast, PlannerError, moved_layers
from planner import Plan as DomainPlan

MOST_PLANS = 4
# From so many nodes on, equal ones are left out.
MANY_NODES = 64
PLANS_OFFERED = 50


class NothingToCompare(PlannerError, ValueError):
    """Too few or too many plans, or some that are not there."""


def plans_to_choose(scope: Any, chosen: Sequence[int]) -> list[Plan]:
    """The newest plans in scope and those `chosen`, newest first, as choices of a list."""
    plans = Plan.objects.within(scope)
    newest = list(plans.order_by("-pk").values_list("pk", flat=True)[:PLANS_OFFERED])
    rows = plans.select_related("cluster", "model")
    return list(rows.filter(pk__in=[*newest, *chosen]).order_by("-pk"))


def plans_to_compare(scope: Any, ids: Sequence[str]) -> list[Plan]:
    """The plans in scope, in that order. Raises NothingToCompare."""
    wanted = list(dict.fromkeys(parsed_id(text) for text in ids))
    if not 2 <= len(wanted) <= MOST_PLANS:
        raise NothingToCompare(
            _("the plans chosen are %(count)s; choose 2 to %(most_plans)s")
            % {"count": len(wanted), "most_plans": MOST_PLANS}
        )
    rows = Plan.objects.within(scope).select_related("cluster", "model", "run")
    found = {row.pk: row for row in rows.filter(pk__in=[pk for pk in wanted if pk is not None])}
    missing = [text for text, pk in zip(ids, wanted, strict=False) if pk not in found]
    if missing:
        raise NothingToCompare(
            _("there is no plan %(missing)s; choose others") % {"missing": repr(missing[0])}
        )
    return [found[pk] for pk in wanted if pk is not None]


def compare(rows: Sequence[Plan]) -> dict[str, Any]:
    """Plans in the order they were asked for, and what each node holds in each, by name.

    `simulated` is a plan's newest offline simulation under our runtime's policy, `moved_bytes` what
    nodes have to load on the way from the first plan: None for the first, and where models differ.
    From `MANY_NODES` on those nodes are `shown` that differ.
    """
    plans = [stored_plan(row) for row in rows]
    nodes = []
    for name in sorted({name for plan in plans for name in plan.placement.layers}):
        held = [plan.placement.layers.get(name) for plan in plans]
        texts = ["" if layers is None else str(layers) for layers in held]
        nodes.append({"node": name, "layers": texts, "differs": len(set(texts)) > 1})
    shown = [node for node in nodes if node["differs"] or len(nodes) < MANY_NODES]
    return {
        "plans": [
            {
                "row": row,
                "plan": plan,
                "figure": objective_words(plan.forecast),
                "simulated": _simulated(row),
                "moved_bytes": _moved_bytes(rows[0], plans[0], row, plan),
            }
            for row, plan in zip(rows, plans, strict=True)
        ],
        "nodes": nodes,
        "shown": shown,
        "left_out": len(nodes) - len(shown),
    }


def _simulated(row: Plan) -> Forecast | None:
    found = offline_simulations(row).values_list("forecast", flat=True).first()
    return None if found is None else forecast_from_json(found)


def _moved_bytes(first_row: Plan, first: DomainPlan, row: Plan, plan: DomainPlan) -> float | None:
    if row.pk == first_row.pk or row.model_id != first_row.model_id:
        return None
    bytes_per_layer = stored_problem(row).model.bytes_per_layer
    return moved_layers(first.placement, plan.placement) * bytes_per_layer
