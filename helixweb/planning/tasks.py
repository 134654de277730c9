"""Celery's way into plan runs, explanations and mixes of models."""

from celery import shared_task

from helixweb.planning import attempts, explaining, mixing, solving

# A wake-up that waited longer than this behind others has been sent again by the reaper.
WAKE_EXPIRES_S = 10.0


@shared_task
def solve_plan_run(*, run_id: int) -> None:
    """Work on the run if it is free, then have its plan explained and wake the run that waits."""
    solving.solve(run_id=run_id)
    _wake_explanations(run_id)
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
    """Work on the mix if it is free, then have its plans explained."""
    for run_id in mixing.plan_mix(mix_id=mix_id):
        _wake_explanations(run_id)


def wake_model_mix(mix_id: int) -> None:
    """Send the mix's message; harmless if it is owned or finished."""
    plan_model_mix.apply_async(kwargs={"mix_id": mix_id}, expires=WAKE_EXPIRES_S)


def _wake_explanations(run_id: int) -> None:
    for explanation_id in explaining.waiting_ids(run_id):
        wake_explanation(explanation_id)
