"""Signals that the apps above answer, which this one must not import."""

from django.dispatch import Signal

# Which links of a cluster carry a plan's flow now? Sent with cluster_id; receivers answer with a
# set of (source, target) names, "coordinator" among them.
links_asked = Signal()

# Asks for current measurements of a cluster's links. Sent with cluster_id and now; receivers answer
# with the context of "inventory/_live_links.html", or None.
links_at_work_asked = Signal()

# A plan was asked for, but nodes lack profiles. Sent with cluster, model, user and now; receivers
# answer with the names of nodes that are measured from now on.
profiles_missing = Signal()
