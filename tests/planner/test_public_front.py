"""What `planner` offers without knowing its modules."""

import inspect
import pkgutil
import subprocess
import sys

import pytest

import planner
from planner.generate import generated_cluster
from planner.serialization import plan_from_text


def test_no_name_of_the_front_is_that_of_a_module():
    """Once imported, the module would take the name's place."""
    modules = {module.name for module in pkgutil.iter_modules(planner.__path__)}
    assert not modules & {*planner.__all__}


@pytest.mark.parametrize("name", planner.__all__)
def test_every_name_of_the_front_is_there(name):
    found = getattr(planner, name)
    if inspect.isclass(found) or inspect.isfunction(found):
        assert found.__name__ == name


def test_a_plan_is_computed_explained_and_written_by_the_front(tmp_path):
    problem = generated_cluster(num_nodes=16, num_regions=1, seed=1)
    plan = planner.compute_plan(
        problem, options=planner.PlanOptions(objective="flow", placer="stage-patterns")
    )
    planner.write_plan(tmp_path / "plan.json", plan)
    written = plan_from_text((tmp_path / "plan.json").read_text(), name_hint="plan.json")
    assert written.placement == plan.placement
    assert planner.explain(problem, plan)


def test_the_front_alone_loads_nothing():
    code = "import planner, sys; print('numpy' in sys.modules, 'highspy' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert shown.stdout.split() == ["False", "False"]
