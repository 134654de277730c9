"""Plan options as JSON columns keep them."""

from datetime import timedelta

import pytest

from helixweb.planning.models import Plan, PlanRun
from helixweb.planning.options import options_from_json, options_to_json
from helixweb.planning.stored import stored_plan
from planner.domain.placement import LayerRange
from planner.domain.rules import PlacementRules
from planner.placers.base import InvalidOptions
from planner.plan_options import PlanOptions


def test_options_come_back_from_json_as_they_were() -> None:
    rules = PlacementRules(
        max_hops=3,
        excluded_nodes=frozenset({"a"}),
        pinned={"b": LayerRange(first=0, end=2)},
        max_layers_of={"c": 1},
    )
    options = PlanOptions(time_limit_s=5, baselines=("swarm",), warm_start="swarm", rules=rules)
    assert options_from_json(options_to_json(options)) == options


def test_keys_left_out_take_their_defaults() -> None:
    assert options_from_json({}) == PlanOptions(objective="flow")


def test_what_the_planner_refuses_is_refused_in_its_words() -> None:
    with pytest.raises(InvalidOptions, match=r"^time_limit_s is -1"):
        options_from_json({"time_limit_s": -1})


def test_a_plan_stored_before_plans_had_their_hop_limit_takes_that_of_its_search(
    plan: Plan,
) -> None:
    assert plan.run is not None
    assert stored_plan(plan).max_hops is None
    PlanRun.unscoped.filter(pk=plan.run.pk).update(
        options=plan.run.options | {"rules": plan.run.options["rules"] | {"max_hops": 2}}
    )
    Plan.unscoped.filter(pk=plan.pk).update(created_at=plan.created_at + timedelta(days=1))
    plan.refresh_from_db()
    assert "max_hops" not in plan.document
    assert stored_plan(plan).max_hops == 2
