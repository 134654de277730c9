"""Celery's way into plan runs, explanations, simulations and mixes of models.

Each task works on its row if that is free and its turn has come, and then wakes who waited for it.
It imports what it works with, most of the planner: every process sends tasks, few of them run one.
"""

from collections.abc import Callable

from celery import shared_task
from django.utils import timezone

from helixweb.common.models import LeasedTask
from helixweb.planning import turns
from helixweb.planning.models import Explanation, ModelMix, PlanRun, Simulation
from helixweb.planning.signals import plan_run_ended

# A wake-up that waited longer than this behind others has been sent again by the reaper.
WAKE_EXPIRES_S = 10.0


@shared_task
def solve_plan_run(*, run_id: int) -> None:
    """Search, then have the plan seen to."""
    from helixweb.planning import solving

    solving.solve(run_id=run_id)
    plan_run_ended.send(sender=PlanRun, run_id=run_id)
    _wake_followers(run_id)
    _wake_waiting(PlanRun)


def wake_plan_run(run_id: int) -> None:
    """Send the run's message; harmless if it is owned or finished."""
    solve_plan_run.apply_async(kwargs={"run_id": run_id}, expires=WAKE_EXPIRES_S)


@shared_task
def explain_plan(*, explanation_id: int) -> None:
    """Work out what explains a plan."""
    from helixweb.planning import explaining

    explaining.explain(explanation_id=explanation_id)
    _wake_waiting(Explanation)


def wake_explanation(explanation_id: int) -> None:
    """Send the explanation's message; harmless if it is owned or finished."""
    explain_plan.apply_async(kwargs={"explanation_id": explanation_id}, expires=WAKE_EXPIRES_S)


@shared_task
def plan_model_mix(*, mix_id: int) -> None:
    """Plan several models at once, then have their plans seen to."""
    from helixweb.planning import mixing

    for run_id in mixing.plan_mix(mix_id=mix_id):
        _wake_followers(run_id)
    _wake_waiting(ModelMix)


def wake_model_mix(mix_id: int) -> None:
    """Send the mix's message; harmless if it is owned or finished."""
    plan_model_mix.apply_async(kwargs={"mix_id": mix_id}, expires=WAKE_EXPIRES_S)


@shared_task
def simulate_plan(*, simulation_id: int) -> None:
    """Serve a plan a workload in the simulator."""
    from helixweb.planning import simulating

    simulating.run(simulation_id=simulation_id)
    _wake_waiting(Simulation)


def wake_simulation(simulation_id: int) -> None:
    """Send the simulation's message; harmless if it is owned or finished."""
    simulate_plan.apply_async(kwargs={"simulation_id": simulation_id}, expires=WAKE_EXPIRES_S)


WAKE: dict[type[LeasedTask], Callable[[int], None]] = {
    PlanRun: wake_plan_run,
    ModelMix: wake_model_mix,
    Explanation: wake_explanation,
    Simulation: wake_simulation,
}


def _wake_waiting(kind: type[LeasedTask]) -> None:
    for waiting, task_id in turns.waiting(kind, now=timezone.now()):
        WAKE[waiting](task_id)


def _wake_followers(run_id: int) -> None:
    """What explains the run's plan, and what simulates it."""
    from helixweb.planning import explaining, simulating

    for explanation_id in explaining.waiting_ids(run_id):
        wake_explanation(explanation_id)
    for simulation_id in simulating.waiting_ids(run_id):
        wake_simulation(simulation_id)
