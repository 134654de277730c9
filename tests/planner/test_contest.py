"""How plans are decided among by simulation in little time."""

import pytest
from tiny_problems import tiny_problem

from planner.objectives.contest import FINAL, Contest
from planner.objectives.trial import Trials
from planner.placers.base import NeverCancelled
from planner.placers.replicas import place_replicas
from planner.placers.separate_pipelines import place_separate_pipelines
from planner.placers.stop import Stop
from planner.plan_options import PlanOptions

PROBLEM = tiny_problem([[400.0, 200.0], [60.0, 30.0], [60.0, 30.0], [20.0, 10.0]], num_layers=2)


@pytest.mark.parametrize(
    "left_s",
    [
        0.5,
        1.0,
        2.0,
        10.0,
        *(pytest.param(left_s, marks=pytest.mark.long) for left_s in (4.0, 30.0)),
    ],
)
def test_no_plan_is_judged_by_the_ramp_of_its_simulation(monkeypatch, left_s):
    """In which plans of few requests lead."""
    trials = Trials(PROBLEM, PlanOptions())
    simulated, spans = Trials.simulated, []

    def recorded(self, trial, *, seeds, span, is_in_time):
        if not is_in_time(span.lifetimes):
            return None
        spans.append(span)
        return simulated(self, trial, seeds=seeds, span=span)

    monkeypatch.setattr(Trials, "simulation_s", lambda _, __, span, **___: span.lifetimes)
    monkeypatch.setattr(Trials, "simulated", recorded)
    ranked = _ranked(trials)
    stop = Stop(time_limit_s=left_s, cancel=NeverCancelled(), clock=lambda: 0.0)
    outcome = Contest(trials, seed=0).decide(ranked, [], neighbours=lambda _: (), stop=stop)
    assert (outcome.figures is None) == (not spans) == (left_s < 1.4)
    assert all(span.lifetimes >= 1.3 and span.warm_up >= 0.6 for span in spans)


def test_a_leader_whose_final_takes_too_long_does_not_lose_to_a_worse_plan(monkeypatch):
    """The worse one serves fewer requests at once, so that its simulation ends in time."""
    trials, finals, in_heat = Trials(PROBLEM, PlanOptions()), [], {}
    simulated = Trials.simulated

    def too_late_for_leader(self, trial, *, seeds, span, is_in_time):
        if span != FINAL:
            in_heat[id(trial)] = simulated(self, trial, seeds=seeds, span=span)
            return in_heat[id(trial)]
        finals.append(trial)
        return None if trial is finals[0] else in_heat[id(trial)]

    monkeypatch.setattr(Trials, "simulated", too_late_for_leader)
    ranked = _ranked(trials)
    stop = Stop(time_limit_s=10.0, cancel=NeverCancelled(), clock=lambda: 0.0)
    outcome = Contest(trials, seed=0).decide(ranked, [], neighbours=lambda _: (), stop=stop)
    assert len(finals) == len(ranked)
    assert outcome.trial is finals[0]


def _ranked(trials):
    return [
        trials.estimated(place(PROBLEM), placer="")
        for place in (place_separate_pipelines, place_replicas)
    ]
