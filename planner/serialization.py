"""Problem files (`helixweb.problem/1`, JSON or YAML) and plan files (`helixweb.plan/1`).

Everything is checked here, once, where it enters: an error names the path of the key, the value
and the remedy, and is always an InvalidProblem. Unknown keys are refused, since a misspelt
optional key would silently do nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import cast, get_args

from planner.document import Section, integer, parse_document, wrong_type
from planner.domain.cluster import (
    COORDINATOR,
    Cluster,
    Link,
    Node,
    SharedBandwidth,
    SharedDirection,
    SharedScope,
)
from planner.domain.errors import InvalidProblem
from planner.domain.flow import (
    EdgeFlow,
    Flow,
    MinCut,
    NodeFlow,
    Price,
    PriceKind,
    SharedFlow,
)
from planner.domain.model_spec import ModelSpec
from planner.domain.placement import LayerRange, Placement
from planner.domain.plan import Plan
from planner.domain.problem import Problem, Workload
from planner.domain.profile import ComputeProfile

PROBLEM_FORMAT = "helixweb.problem/1"
PLAN_FORMAT = "helixweb.plan/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedPlacement:
    """Somebody's placement and the max flow that they computed for it."""

    placement: Placement
    max_flow_tokens_per_s: float


def problem_from_text(text: str, *, name_hint: str) -> Problem:
    """Read a problem; errors start with `name_hint`, whose suffix tells JSON from YAML."""
    try:
        return problem_from_dict(parse_document(text, name_hint=name_hint))
    except InvalidProblem as error:
        raise InvalidProblem(f"{name_hint}: {error}") from None


def problem_from_dict(document: object) -> Problem:
    """The problem in a parsed document; its cluster takes the problem's name."""
    top = Section.at(document, "")
    _check_format(top, PROBLEM_FORMAT)
    top.allow_only(
        "format",
        "name",
        "source",
        "model",
        "workload",
        "compute_profiles",
        "nodes",
        "coordinator",
        "network",
    )
    name = top.name("name")
    profiles = {profile.name: profile for profile in _compute_profiles(top)}
    return Problem(
        name=name,
        source=top.text("source") if top.has("source") else "",
        model=_model(top.section("model")),
        workload=_workload(top.section("workload")),
        compute_profiles=profiles,
        cluster=_cluster(top, name=name, profiles=profiles),
    )


def problem_to_dict(problem: Problem) -> dict[str, object]:
    """The document that `problem_from_dict` reads."""
    document: dict[str, object] = {"format": PROBLEM_FORMAT, "name": problem.name}
    if problem.source:
        document["source"] = problem.source
    cluster = problem.cluster
    return document | {
        "model": asdict(problem.model),
        "workload": asdict(problem.workload),
        "compute_profiles": {
            name: {
                "gpu": profile.gpu,
                "vram_bytes": profile.vram_bytes,
                "max_layers": profile.max_layers,
                "tokens_per_s": list(profile.tokens_per_s),
                "kv_capacity_token_layers": list(profile.kv_capacity_token_layers),
            }
            for name, profile in problem.compute_profiles.items()
        },
        "nodes": [asdict(node) for node in cluster.nodes],
        "coordinator": {"region": cluster.coordinator_region},
        "network": {
            "region_pairs": [asdict(link) for link in cluster.region_links],
            "links": [asdict(link) for link in cluster.links],
            **_shared_to_dict(cluster),
        },
    }


def _shared_to_dict(cluster: Cluster) -> dict[str, object]:
    """The optional key, only where it says something."""
    if not cluster.shared:
        return {}
    return {
        "shared": [asdict(shared) | {"members": list(shared.members)} for shared in cluster.shared]
    }


def plan_from_text(text: str, *, name_hint: str) -> Plan:
    """Read a plan; errors start with `name_hint`."""
    try:
        return plan_from_dict(parse_document(text, name_hint=name_hint))
    except InvalidProblem as error:
        raise InvalidProblem(f"{name_hint}: {error}") from None


def plan_from_dict(document: object) -> Plan:
    """The plan in a parsed document."""
    top = Section.at(document, "")
    _check_format(top, PLAN_FORMAT)
    top.allow_only(
        "format",
        "problem_name",
        "model_name",
        "num_layers",
        "partial_inference",
        "placement",
        "flow_tokens_per_s",
        "upper_bound_tokens_per_s",
        "hops",
        "placer",
        "solver",
        "stop_reason",
        "elapsed_s",
        "routing_weights",
        "flow",
    )
    num_layers = top.integer("num_layers", minimum=1)
    return Plan(
        problem_name=top.name("problem_name"),
        model_name=top.name("model_name"),
        num_layers=num_layers,
        partial_inference=top.boolean("partial_inference"),
        placement=_placement(top.section("placement"), num_layers=num_layers),
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
        "placement": plan.placement.as_lists(),
        "routing_weights": {
            source: dict(targets) for source, targets in plan.routing_weights.items()
        },
        "flow": {
            "edges": [asdict(edge) for edge in plan.flow.edges],
            "nodes": {name: asdict(node) for name, node in plan.flow.nodes.items()},
            "min_cut": _min_cut_to_dict(plan.flow.min_cut),
            **({"shared": [asdict(s) for s in plan.flow.shared]} if plan.flow.shared else {}),
        },
    }


def _min_cut_to_dict(min_cut: MinCut) -> dict[str, object]:
    document: dict[str, object] = {
        "nodes": list(min_cut.nodes),
        "edges": [list(edge) for edge in min_cut.edges],
        "capacity_tokens_per_s": min_cut.capacity_tokens_per_s,
    }
    if min_cut.prices:
        document["shared"] = list(min_cut.shared)
        document["prices"] = [
            asdict(price) | {"name": list(price.name)} for price in min_cut.prices
        ]
    return document


def published_placements_from_text(
    text: str, *, name_hint: str, num_layers: int
) -> dict[str, PublishedPlacement]:
    """A file of named placements: name -> layers {node: [first, end]}, max_flow_tokens_per_s."""
    try:
        top = Section.at(parse_document(text, name_hint=name_hint), "")
        published = {}
        for name in top.values:
            section = top.section(name)
            section.allow_only("layers", "max_flow_tokens_per_s")
            published[name] = PublishedPlacement(
                placement=_placement(section.section("layers"), num_layers=num_layers),
                max_flow_tokens_per_s=section.number_from_zero("max_flow_tokens_per_s"),
            )
    except InvalidProblem as error:
        raise InvalidProblem(f"{name_hint}: {error}") from None
    return published


def _check_format(top: Section, expected: str) -> None:
    found = top.value("format")
    if found != expected:
        raise wrong_type("format", found, f"{expected!r}")


def _model(section: Section) -> ModelSpec:
    section.allow_only(
        "name", "num_layers", "activation_bytes_per_token", "token_bytes", "bytes_per_layer"
    )
    return ModelSpec(
        name=section.name("name"),
        num_layers=section.integer("num_layers", minimum=1),
        activation_bytes_per_token=section.positive_number("activation_bytes_per_token"),
        token_bytes=section.positive_number("token_bytes"),
        bytes_per_layer=section.positive_number("bytes_per_layer"),
    )


def _workload(section: Section) -> Workload:
    section.allow_only("mean_prompt_tokens", "mean_output_tokens")
    return Workload(
        mean_prompt_tokens=section.positive_number("mean_prompt_tokens"),
        mean_output_tokens=section.positive_number("mean_output_tokens"),
    )


def _compute_profiles(top: Section) -> Iterator[ComputeProfile]:
    profiles = top.section("compute_profiles")
    for name in profiles.values:
        section = profiles.section(name)
        section.allow_only(
            "gpu", "vram_bytes", "max_layers", "tokens_per_s", "kv_capacity_token_layers"
        )
        yield ComputeProfile(
            name=name,
            gpu=section.text("gpu"),
            vram_bytes=section.positive_number("vram_bytes"),
            max_layers=section.integer("max_layers", minimum=0),
            tokens_per_s=section.numbers_from_zero("tokens_per_s"),
            kv_capacity_token_layers=section.numbers_from_zero("kv_capacity_token_layers"),
        )


def _cluster(top: Section, *, name: str, profiles: Mapping[str, ComputeProfile]) -> Cluster:
    coordinator = top.section("coordinator")
    coordinator.allow_only("region")
    network = top.section("network")
    network.allow_only("region_pairs", "links", "shared")
    nodes = tuple(_nodes(top, profiles))
    if not nodes:
        raise InvalidProblem("nodes is an empty list; add at least one node")
    return Cluster(
        name=name,
        coordinator_region=coordinator.name("region"),
        nodes=nodes,
        region_links=tuple(link for _, link in _links(network, "region_pairs")),
        links=tuple(_node_links(network, {node.name for node in nodes})),
        shared=tuple(_shared(network)) if network.has("shared") else (),
    )


def _nodes(top: Section, profiles: Mapping[str, ComputeProfile]) -> Iterator[Node]:
    path_by_name: dict[str, str] = {}
    for section in top.sections("nodes"):
        section.allow_only("name", "region", "compute_profile")
        name = section.name("name")
        if name in path_by_name:
            raise InvalidProblem(
                f"{section.path_of('name')} is {name!r}, which {path_by_name[name]} has already; "
                "node names must be unique"
            )
        path_by_name[name] = section.path
        profile = section.name("compute_profile")
        if profile not in profiles:
            raise InvalidProblem(
                f"{section.path_of('compute_profile')} is {profile!r}, which is unknown; add it to "
                f"compute_profiles or use one of: {', '.join(sorted(profiles)) or 'none yet'}"
            )
        yield Node(name=name, region=section.name("region"), compute_profile=profile)


def _node_links(network: Section, node_names: set[str]) -> Iterator[Link]:
    for section, link in _links(network, "links"):
        for key in ("source", "target"):
            end = section.name(key)
            if end != COORDINATOR and end not in node_names:
                raise InvalidProblem(
                    f"{section.path_of(key)} is {end!r}, which is not a node; use the name of a "
                    f"listed node or {COORDINATOR!r}"
                )
        yield link


def _links(network: Section, key: str) -> Iterator[tuple[Section, Link]]:
    for section in network.sections(key):
        section.allow_only("source", "target", "bandwidth_bytes_per_s", "latency_s")
        yield (
            section,
            Link(
                source=section.name("source"),
                target=section.name("target"),
                bandwidth_bytes_per_s=section.positive_number("bandwidth_bytes_per_s"),
                latency_s=section.number_from_zero("latency_s"),
            ),
        )


def _shared(network: Section) -> Iterator[SharedBandwidth]:
    for section in network.sections("shared"):
        section.allow_only("name", "members", "direction", "bandwidth_bytes_per_s", "scope")
        yield SharedBandwidth(
            name=section.name("name"),
            members=section.texts("members"),
            direction=cast(SharedDirection, _one_of(section, "direction", SharedDirection)),
            bandwidth_bytes_per_s=section.positive_number("bandwidth_bytes_per_s"),
            scope=cast(SharedScope, _one_of(section, "scope", SharedScope)),
        )


def _one_of(section: Section, key: str, choices: object) -> str:
    value = section.text(key)
    if value not in get_args(choices):
        raise wrong_type(section.path_of(key), value, f"one of: {', '.join(get_args(choices))}")
    return value


def _placement(section: Section, *, num_layers: int) -> Placement:
    layers = {}
    for name in section.values:
        path = section.path_of(name)
        bounds = section.items(name)
        if len(bounds) != 2:
            raise wrong_type(path, bounds, "two whole numbers [first, end]")
        first, end = (
            integer(bound, f"{path}[{index}]", minimum=0) for index, bound in enumerate(bounds)
        )
        if not first < end <= num_layers:
            raise InvalidProblem(
                f"{path} is [{first}, {end}]; it must satisfy first < end <= {num_layers}"
            )
        layers[name] = LayerRange(first=first, end=end)
    return Placement(layers=layers)


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
            tuple(_price(price) for price in section.sections("prices"))
            if section.has("prices")
            else ()
        ),
    )


def _price(section: Section) -> Price:
    section.allow_only("kind", "name", "price")
    return Price(
        kind=cast(PriceKind, _one_of(section, "kind", PriceKind)),
        name=section.texts("name"),
        price=section.number_from_zero("price"),
    )
