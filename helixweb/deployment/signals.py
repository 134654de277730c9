"""What apps above may listen to, so that this one need not know them."""

from django.dispatch import Signal

# A coordinator reported; sent inside the transaction that stores the report, with cluster_id,
# report (CoordinatorReport), node_stats (name -> StageStats of the ready stages), at (datetime).
report_received = Signal()
