"""What people do with plan runs and plans; views and the REST API call these functions."""

from helixweb.planning.services.ending import accept_best_so_far
from helixweb.planning.services.explaining import explain_anew
from helixweb.planning.services.fit import BaselineFit, Fit, ProfileFit, preview_fit
from helixweb.planning.services.imagining import (
    NothingToCompare,
    WhatIfAnswer,
    answer_what_if,
    plans_to_choose,
    plans_to_compare,
)
from helixweb.planning.services.mixing import start_model_mix
from helixweb.planning.services.replanning import (
    Changes,
    adopt_point,
    changes_since,
    flow_without_moves,
    start_replan,
)
from helixweb.planning.services.simulating import start_simulation
from helixweb.planning.services.starting import (
    compute_again,
    extend_plan_run,
    start_plan_run,
    start_what_if,
)

__all__ = [
    "BaselineFit",
    "Changes",
    "Fit",
    "NothingToCompare",
    "ProfileFit",
    "WhatIfAnswer",
    "accept_best_so_far",
    "adopt_point",
    "answer_what_if",
    "changes_since",
    "compute_again",
    "explain_anew",
    "extend_plan_run",
    "flow_without_moves",
    "plans_to_choose",
    "plans_to_compare",
    "preview_fit",
    "start_model_mix",
    "start_plan_run",
    "start_replan",
    "start_simulation",
    "start_what_if",
]
