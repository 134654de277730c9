"""What people do with plan runs; views and the REST API call these functions."""

from helixweb.planning.services.ending import accept_best_so_far, cancel_plan_run
from helixweb.planning.services.fit import Fit, ProfileFit, preview_fit
from helixweb.planning.services.starting import extend_plan_run, start_plan_run

__all__ = [
    "Fit",
    "ProfileFit",
    "accept_best_so_far",
    "cancel_plan_run",
    "extend_plan_run",
    "preview_fit",
    "start_plan_run",
]
