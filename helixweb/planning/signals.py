"""What apps above may listen to, so that this one need not know them."""

from django.dispatch import Signal

# A plan run's task is over, with a plan or without; sent with run_id, after commit.
plan_run_ended = Signal()
