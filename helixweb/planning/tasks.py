"""Celery's way into plan runs, explanations, simulations and mixes of models."""

from celery import shared_task

from helixweb.planning import attempts, explaining, mixing, simulating, solving

# A wake-up that waited longer than this behind others has been sent again by the reaper.
WAKE_EXPIRES_S = 10.0


@shared_task
def solve_plan_run(*, run_id: int) -> None:
    """Work on the run if it is free, then have its plan seen to and wake the run that waits."""
    solving.solve(run_id=run_id)
    _wake_followers(run_id)
    for queued_id in attempts.next_queued_ids():
        if queued_id != run_id:
            wake_plan_run(queued_id)


def wake_plan_run(run_id: int) -> None:
    """Send the run's message; harmless if it is owned or finished."""
    solve_plan_run.apply_async(kwargs={"run_id": run_id}, expires=WAKE_EXPIRES_S)


@shared_task
def explain_plan(*, explanation_id: int) -> None:
    """Work out what explains a plan."""
    explaining.explain(explanation_id=explanation_id)


def wake_explanation(explanation_id: int) -> None:
    """Send the explanation's message; harmless if it is owned or finished."""
    explain_plan.apply_async(kwargs={"explanation_id": explanation_id}, expires=WAKE_EXPIRES_S)


@shared_task
def plan_model_mix(*, mix_id: int) -> None:
    """Work on the mix if it is free, then have its plans seen to."""
    for run_id in mixing.plan_mix(mix_id=mix_id):
        _wake_followers(run_id)


def wake_model_mix(mix_id: int) -> None:
    """Send the mix's message; harmless if it is owned or finished."""
    plan_model_mix.apply_async(kwargs={"mix_id": mix_id}, expires=WAKE_EXPIRES_S)


@shared_task
def simulate_plan(*, simulation_id: int) -> None:
    """Serve a plan a workload in the simulator."""
    simulating.run(simulation_id=simulation_id)


def wake_simulation(simulation_id: int) -> None:
    """Send the simulation's message; harmless if it is owned or finished."""
    simulate_plan.apply_async(kwargs={"simulation_id": simulation_id}, expires=WAKE_EXPIRES_S)


def _wake_followers(run_id: int) -> None:
    """What explains the run's plan, and what simulates it."""
    for explanation_id in explaining.waiting_ids(run_id):
        wake_explanation(explanation_id)
    for simulation_id in simulating.waiting_ids(run_id):
        wake_simulation(simulation_id)
