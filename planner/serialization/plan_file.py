"""Plan files: `helixweb.plan/1`."""

from dataclasses import replace
from typing import Annotated

from planner.document import Section, parse_document, wrong_type
from planner.domain.errors import InvalidPlacement, InvalidProblem
from planner.domain.flow import Flow
from planner.domain.limits import Range
from planner.domain.placement import Placement
from planner.domain.plan import Plan
from planner.serialization.placements import check_format, placement_from
from planner.serialization.records import record_from, record_to_dict, value_from

PLAN_FORMAT = "helixweb.plan/1"
# Written apart: the flow's value beside the flow, components beside the placement.
_VALUE, _COMPONENTS = "flow_tokens_per_s", "components"


def plan_from_text(text: str, *, name_hint: str) -> Plan:
    """Read a plan; errors start with `name_hint`."""
    try:
        return plan_from_dict(parse_document(text, name_hint=name_hint))
    except InvalidProblem as error:
        raise InvalidProblem(f"{name_hint}: {error}") from None


def plan_from_dict(document: object) -> Plan:
    """The plan in a parsed document."""
    top = Section.at(document, "")
    check_format(top, PLAN_FORMAT)
    flow = record_from(
        top.section("flow"),
        Flow,
        given={"value_tokens_per_s": value_from(top.value(_VALUE), _VALUE, float)},
    )
    plan = record_from(
        top,
        Plan,
        given={"placement": _placement(top), "flow": flow},
        besides=("format", "placement", _COMPONENTS, "flow", _VALUE),
    )
    _check_instances(plan)
    return plan


def plan_to_dict(plan: Plan) -> dict[str, object]:
    """The document that `plan_from_dict` reads."""
    flow = record_to_dict(plan.flow, brief=True)
    document = {
        "format": PLAN_FORMAT,
        **record_to_dict(
            replace(plan, forecast=None, instances=(), method_choice=None), brief=True
        ),
        _VALUE: flow.pop("value_tokens_per_s"),
        "flow": flow,
        "placement": plan.placement.as_lists(),
    }
    if plan.placement.components:
        document[_COMPONENTS] = [sorted(names) for names in plan.placement.components]
    # These three with all their fields.
    if plan.forecast is not None:
        document["forecast"] = record_to_dict(plan.forecast)
    if plan.instances:
        document["instances"] = [record_to_dict(one) for one in plan.instances]
    if plan.method_choice is not None:
        document["method_choice"] = record_to_dict(plan.method_choice)
    return document


def _placement(top: Section) -> Placement:
    num_layers = value_from(top.value("num_layers"), "num_layers", Annotated[int, Range(1)])
    placement = placement_from(top.section("placement"), num_layers=num_layers)
    components = []
    for index, names in enumerate(top.items(_COMPONENTS) if top.has(_COMPONENTS) else []):
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise wrong_type(f"{_COMPONENTS}[{index}]", names, "a list of node names")
        components.append(frozenset(names))
    try:
        return replace(placement, components=tuple(components))
    except InvalidPlacement as error:
        raise InvalidProblem(f"{_COMPONENTS}: {error}") from None


def _check_instances(plan: Plan) -> None:
    """Each has its own name, their nodes hold the whole model, and no two have the same GPU."""
    names = [one.name for one in plan.instances]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidProblem(f"instances has {twice[0]!r} twice; give each its own name")
    taken: dict[tuple[str, int], str] = {}
    for one in plan.instances:
        held = plan.placement.layers.get(one.node)
        if held is None or len(held) != plan.num_layers:
            raise InvalidProblem(
                f"instances: {one.name!r} is on node {one.node!r}, which holds "
                f"{'nothing' if held is None else held} of {plan.num_layers} layers; a node with "
                "instances holds all"
            )
        for gpu in one.gpus:
            other = taken.setdefault((one.node, gpu), one.name)
            if other != one.name:
                raise InvalidProblem(
                    f"instances: {other!r} and {one.name!r} both have GPU {gpu} of node "
                    f"{one.node!r}; give each its own"
                )
