"""Whole-model instances in plan files: `instances` of `helixweb.plan/1`."""

from planner.document import Section
from planner.domain.errors import InvalidProblem
from planner.domain.instance import DegreeRank, MethodChoice, MethodForecast, PlannedInstance
from planner.serialization.records import record_from


def instances_from(top: Section) -> tuple[PlannedInstance, ...]:
    """Raises InvalidProblem, also for two of the same name."""
    found = tuple(_instance(section) for section in top.sections("instances"))
    names = [one.name for one in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidProblem(
            f"{top.path_of('instances')} has {twice[0]!r} twice; give each its own name"
        )
    return found


def _instance(section: Section) -> PlannedInstance:
    for key in ("name", "node"):
        section.name(key)
    least = {"tensor_parallel": 1, "kv_room_tokens": 1}
    return record_from(section, PlannedInstance, least=least)


def choice_from(section: Section) -> MethodChoice:
    section.allow_only("chosen", "candidates", "degrees")
    return MethodChoice(
        chosen=section.text("chosen"),
        candidates=tuple(
            record_from(one, MethodForecast) for one in section.sections("candidates")
        ),
        degrees=tuple(
            record_from(one, DegreeRank, least={"degree": 1}) for one in section.sections("degrees")
        ),
    )
