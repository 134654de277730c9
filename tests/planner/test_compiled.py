"""CI must not skip what compares compiled code with Python: there, missing code is a failure."""

import pytest

from planner.bounds import compiled_cover
from planner.estimate.compiled import library as estimate
from planner.integer_flow import compiled as integer_flow
from planner.placers.compiled import loops
from planner.simulator.compiled import compiled_engine
from tests.installed import is_required


@pytest.mark.parametrize(
    "module",
    [compiled_cover, estimate, integer_flow, loops, compiled_engine],
    ids=lambda m: m.__name__,
)
def test_loops_are_compiled_where_a_compiler_is_required(module):
    if not is_required("compiler"):
        pytest.skip("HELIX_TEST_REQUIRE does not name the compiler")
    assert module.is_compiled()
