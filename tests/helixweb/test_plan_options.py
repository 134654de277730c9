"""Plan options as JSON columns keep them."""

import pytest

from helixweb.planning.options import options_from_json, options_to_json
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
