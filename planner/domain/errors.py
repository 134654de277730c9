"""The root of the planner's exceptions."""


class PlannerError(Exception):
    """Anything the planner refuses; the message names the value and what would be right."""


class InvalidProblem(PlannerError, ValueError):
    """A problem, cluster, model or profile that contradicts itself or the format."""


class InvalidPlacement(PlannerError, ValueError):
    """A placement that names unknown nodes or layers outside the model."""
