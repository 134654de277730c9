from typing import Literal, get_args, get_origin

import pytest

from planner.domain.option import options_of
from planner.domain.rules import PlacementRules
from planner.plan_options import PlanOptions

OPTIONS = [*options_of(PlanOptions).values(), *options_of(PlacementRules).values()]


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_an_option_takes_its_own_default_and_labels_each_word_of_its_type(option):
    words = get_args(option.kind) if get_origin(option.kind) is Literal else ()
    assert not words or set(words) == set(option.spec.choices)
    if isinstance(option.default, int | float):
        assert option.spec.least is None or option.default >= option.spec.least
        assert option.spec.most is None or option.default <= option.spec.most
    for word in option.default if isinstance(option.default, tuple) else (option.default,):
        assert not option.spec.choices or word in option.spec.choices
