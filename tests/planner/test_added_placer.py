"""What `docs/extend/placer.md` says: a placer is a function and two entries."""

import json

import pytest
from tiny_problems import tiny_problem

from docs.examples.placer import search_even_stages
from planner.__main__ import main
from planner.max_flow import max_flow
from planner.placers.base import PLACERS
from planner.placers.portfolio import METHODS
from planner.plan_options import PlanOptions
from planner.planning import compute_plan
from planner.serialization import problem_to_dict

# Two unlike nodes can halve the model, or be two slow replicas of it, as the baselines have them.
PROBLEM = tiny_problem([[90.0, 80.0, 10.0, 9.0], [91.0, 81.0, 10.0, 9.0]], num_layers=4)


@pytest.fixture(autouse=True)
def _added(monkeypatch):
    monkeypatch.setitem(PLACERS, "even-stages", "Even stages")
    monkeypatch.setitem(METHODS, "even-stages", search_even_stages)


def test_an_added_placer_plans_under_the_checks_of_all():
    options = PlanOptions(objective="flow", placer="even-stages", baselines=(), time_limit_s=20.0)
    plan = compute_plan(PROBLEM, options=options, clock=lambda: 0.0)
    assert plan.placer == "even-stages"
    flow = max_flow(PROBLEM, plan.placement, partial_inference=True)
    assert plan.flow.value_tokens_per_s == flow.value_tokens_per_s > 0


def test_the_command_line_takes_an_added_placer(tmp_path, capsys):
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(problem_to_dict(PROBLEM)))
    arguments = ["compare", str(path), "--objective", "flow", "--placers", "even-stages", "--json"]
    assert main(arguments) == 0
    names = [row["name"] for row in json.loads(capsys.readouterr().out)["placements"]]
    assert names[-1] == "solve (even-stages)"
