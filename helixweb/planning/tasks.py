"""Celery's way into plan runs."""

from celery import shared_task

from helixweb.planning import attempts, solving

# A wake-up that waited longer than this behind others has been sent again by the reaper.
WAKE_EXPIRES_S = 10.0


@shared_task
def solve_plan_run(*, run_id: int) -> None:
    """Work on the run if it is free, then wake the one that waits for its place."""
    solving.solve(run_id=run_id)
    for queued_id in attempts.next_queued_ids():
        if queued_id != run_id:
            wake_plan_run(queued_id)


def wake_plan_run(run_id: int) -> None:
    """Send the run's message; harmless if it is owned or finished."""
    solve_plan_run.apply_async(kwargs={"run_id": run_id}, expires=WAKE_EXPIRES_S)
