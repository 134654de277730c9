"""Signals to the apps above, which this one must not import."""

from django.dispatch import Signal

# A coordinator reported; sent inside the transaction that stores the report, with cluster_id,
# report (CoordinatorReport), node_stats (name -> StageStats of the ready stages), at (datetime).
report_received = Signal()
