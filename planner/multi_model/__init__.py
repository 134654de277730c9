"""Several models on one cluster: which nodes serve which, and each one's plan.

The use case is `plan_models.py`; commands, the web and tests import from here.
"""

from planner.multi_model.plan_models import plan_models
from planner.multi_model.shares import MIXED, ModelMix, ModelShare, NoDealFound, served_by

__all__ = [
    "MIXED",
    "ModelMix",
    "ModelShare",
    "NoDealFound",
    "plan_models",
    "served_by",
]
