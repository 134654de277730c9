"""Plan files: `helixweb.plan/1`."""

from dataclasses import asdict, replace

from planner.document import Section, parse_document, wrong_type
from planner.domain.errors import InvalidPlacement, InvalidProblem
from planner.domain.flow import (
    EdgeFlow,
    Flow,
    MinCut,
    NodeFlow,
    Price,
    SharedFlow,
)
from planner.domain.placement import Placement
from planner.domain.plan import Plan
from planner.serialization.forecasts import forecast_from
from planner.serialization.placements import check_format, placement_from
from planner.serialization.planned_instances import choice_from, instances_from
from planner.serialization.records import record_from, record_to_dict

PLAN_FORMAT = "helixweb.plan/1"


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
    top.allow_only(
        "format",
        "problem_name",
        "model_name",
        "num_layers",
        "partial_inference",
        "placement",
        "components",
        "flow_tokens_per_s",
        "upper_bound_tokens_per_s",
        "hops",
        "placer",
        "solver",
        "stop_reason",
        "elapsed_s",
        "max_hops",
        "routing_weights",
        "flow",
        "forecast",
        "instances",
        "method_choice",
    )
    num_layers = top.integer("num_layers", minimum=1)
    plan = Plan(
        problem_name=top.name("problem_name"),
        model_name=top.name("model_name"),
        num_layers=num_layers,
        partial_inference=top.boolean("partial_inference"),
        placement=_placement(top, num_layers=num_layers),
        flow=_flow(
            top.section("flow"), value_tokens_per_s=top.number_from_zero("flow_tokens_per_s")
        ),
        upper_bound_tokens_per_s=top.number_from_zero("upper_bound_tokens_per_s"),
        hops=top.number_from_zero("hops"),
        routing_weights=_routing_weights(top.section("routing_weights")),
        placer=top.text("placer"),
        solver=top.text("solver"),
        stop_reason=top.text("stop_reason"),
        elapsed_s=top.number_from_zero("elapsed_s"),
        max_hops=top.integer("max_hops", minimum=1) if top.has("max_hops") else None,
        forecast=forecast_from(top.section("forecast")) if top.has("forecast") else None,
        instances=instances_from(top) if top.has("instances") else (),
        method_choice=(
            choice_from(top.section("method_choice")) if top.has("method_choice") else None
        ),
    )
    _check_instances(plan)
    return plan


def _check_instances(plan: Plan) -> None:
    """Their nodes hold the whole model, and no two have the same GPU."""
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


def plan_to_dict(plan: Plan) -> dict[str, object]:
    """The document that `plan_from_dict` reads."""
    return {
        "format": PLAN_FORMAT,
        "problem_name": plan.problem_name,
        "model_name": plan.model_name,
        "num_layers": plan.num_layers,
        "partial_inference": plan.partial_inference,
        "flow_tokens_per_s": plan.flow.value_tokens_per_s,
        "upper_bound_tokens_per_s": plan.upper_bound_tokens_per_s,
        "hops": plan.hops,
        "placer": plan.placer,
        "solver": plan.solver,
        "stop_reason": plan.stop_reason,
        "elapsed_s": plan.elapsed_s,
        **({} if plan.max_hops is None else {"max_hops": plan.max_hops}),
        "placement": plan.placement.as_lists(),
        **_components_to_dict(plan.placement),
        "routing_weights": {
            source: dict(targets) for source, targets in plan.routing_weights.items()
        },
        "flow": {
            "edges": [asdict(edge) for edge in plan.flow.edges],
            "nodes": {name: asdict(node) for name, node in plan.flow.nodes.items()},
            "min_cut": _min_cut_to_dict(plan.flow.min_cut),
            **({"shared": [asdict(s) for s in plan.flow.shared]} if plan.flow.shared else {}),
        },
        **({"forecast": record_to_dict(plan.forecast)} if plan.forecast else {}),
        **(
            {"instances": [record_to_dict(one) for one in plan.instances]} if plan.instances else {}
        ),
        **({"method_choice": record_to_dict(plan.method_choice)} if plan.method_choice else {}),
    }


def _components_to_dict(placement: Placement) -> dict[str, object]:
    """The optional key, only where the nodes serve apart."""
    if not placement.components:
        return {}
    return {"components": [sorted(component) for component in placement.components]}


def _placement(top: Section, *, num_layers: int) -> Placement:
    placement = placement_from(top.section("placement"), num_layers=num_layers)
    if not top.has("components"):
        return placement
    components = []
    for index, names in enumerate(top.items("components")):
        path = f"{top.path_of('components')}[{index}]"
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise wrong_type(path, names, "a list of node names")
        components.append(frozenset(names))
    try:
        return replace(placement, components=tuple(components))
    except InvalidPlacement as error:
        raise InvalidProblem(f"components: {error}") from None


def _min_cut_to_dict(min_cut: MinCut) -> dict[str, object]:
    document: dict[str, object] = {
        "nodes": list(min_cut.nodes),
        "edges": [list(edge) for edge in min_cut.edges],
        "capacity_tokens_per_s": min_cut.capacity_tokens_per_s,
    }
    if min_cut.prices:
        document["shared"] = list(min_cut.shared)
        document["prices"] = [record_to_dict(price) for price in min_cut.prices]
    return document


def _routing_weights(section: Section) -> dict[str, dict[str, float]]:
    weights = {}
    for source in section.values:
        targets = section.section(source)
        weights[source] = {target: targets.positive_number(target) for target in targets.values}
    return weights


def _flow(section: Section, *, value_tokens_per_s: float) -> Flow:
    section.allow_only("edges", "nodes", "min_cut", "shared")
    nodes = section.section("nodes")
    return Flow(
        value_tokens_per_s=value_tokens_per_s,
        edges=tuple(_edge_flow(edge) for edge in section.sections("edges")),
        nodes={name: _node_flow(nodes.section(name)) for name in nodes.values},
        min_cut=_min_cut(section.section("min_cut")),
        shared=(
            tuple(_shared_flow(shared) for shared in section.sections("shared"))
            if section.has("shared")
            else ()
        ),
    )


def _shared_flow(section: Section) -> SharedFlow:
    section.allow_only("name", "bandwidth_bytes_per_s", "used_bytes_per_s")
    return SharedFlow(
        name=section.name("name"),
        bandwidth_bytes_per_s=section.positive_number("bandwidth_bytes_per_s"),
        used_bytes_per_s=section.number_from_zero("used_bytes_per_s"),
    )


def _edge_flow(section: Section) -> EdgeFlow:
    section.allow_only("source", "target", "capacity_tokens_per_s", "flow_tokens_per_s")
    return EdgeFlow(
        source=section.name("source"),
        target=section.name("target"),
        capacity_tokens_per_s=section.number_from_zero("capacity_tokens_per_s"),
        flow_tokens_per_s=section.number_from_zero("flow_tokens_per_s"),
    )


def _node_flow(section: Section) -> NodeFlow:
    section.allow_only("capacity_tokens_per_s", "flow_tokens_per_s")
    return NodeFlow(
        capacity_tokens_per_s=section.number_from_zero("capacity_tokens_per_s"),
        flow_tokens_per_s=section.number_from_zero("flow_tokens_per_s"),
    )


def _min_cut(section: Section) -> MinCut:
    section.allow_only("nodes", "edges", "capacity_tokens_per_s", "shared", "prices")
    nodes = section.texts("nodes")
    edges = []
    for index, edge in enumerate(section.items("edges")):
        path = f"{section.path_of('edges')}[{index}]"
        if not (
            isinstance(edge, list) and len(edge) == 2 and all(isinstance(end, str) for end in edge)
        ):
            raise wrong_type(path, edge, "a pair [source, target]")
        edges.append((edge[0], edge[1]))
    return MinCut(
        nodes=nodes,
        edges=tuple(edges),
        capacity_tokens_per_s=section.number_from_zero("capacity_tokens_per_s"),
        shared=section.texts("shared") if section.has("shared") else (),
        prices=(
            tuple(record_from(price, Price) for price in section.sections("prices"))
            if section.has("prices")
            else ()
        ),
    )
