"""Problem files: `helixweb.problem/1`, JSON or YAML."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import cast

from planner.document import Section, finite_number, integer, parse_document, wrong_type
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
from planner.domain.instance import InstanceTimes
from planner.domain.layer_times import FIXED_KEYS, BatchLimits, LayerTimes, Points
from planner.domain.model_spec import ModelSpec
from planner.domain.problem import Problem, Workload
from planner.domain.profile import ComputeProfile
from planner.serialization.node_memory import memory_from, memory_to_dict
from planner.serialization.placements import check_format, one_of
from planner.serialization.records import record_from, record_to_dict

PROBLEM_FORMAT = "helixweb.problem/1"


def problem_from_text(text: str, *, name_hint: str) -> Problem:
    """Read a problem; errors start with `name_hint`, whose suffix tells JSON from YAML."""
    try:
        return problem_from_dict(parse_document(text, name_hint=name_hint))
    except InvalidProblem as error:
        raise InvalidProblem(f"{name_hint}: {error}") from None


def problem_from_dict(document: object) -> Problem:
    """The problem in a parsed document; its cluster takes the problem's name."""
    top = Section.at(document, "")
    check_format(top, PROBLEM_FORMAT)
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
        "model": _model_to_dict(problem.model),
        "workload": asdict(problem.workload),
        "compute_profiles": {
            name: profile_to_dict(profile) for name, profile in problem.compute_profiles.items()
        },
        "nodes": [_node_to_dict(node) for node in cluster.nodes],
        "coordinator": {"region": cluster.coordinator_region},
        "network": {
            "region_pairs": [asdict(link) for link in cluster.region_links],
            "links": [asdict(link) for link in cluster.links],
            **_shared_to_dict(cluster),
        },
    }


def profile_to_dict(profile: ComputeProfile) -> dict[str, object]:
    """A compute profile's section of a problem; its name is the section's key."""
    section: dict[str, object] = {
        "gpu": profile.gpu,
        "vram_bytes": profile.vram_bytes,
        "max_layers": profile.max_layers,
        "tokens_per_s": list(profile.tokens_per_s),
        "kv_capacity_token_layers": list(profile.kv_capacity_token_layers),
    }
    if profile.price_per_hour is not None:
        section["price_per_hour"] = profile.price_per_hour
    if profile.layer_times is not None:
        section["layer_times"] = {
            "prompt": [list(point) for point in profile.layer_times.prompt],
            "decode": [list(point) for point in profile.layer_times.decode],
        } | {key: seconds for key in FIXED_KEYS if (seconds := getattr(profile.layer_times, key))}
    if profile.instance_times:
        section["instance_times"] = {
            str(degree): record_to_dict(times) for degree, times in profile.instance_times.items()
        }
    if profile.memory is not None:
        section["memory"] = memory_to_dict(profile.memory)
    if profile.batch_limits is not None:
        section["batch_limits"] = {
            "prompt_max_requests": list(profile.batch_limits.prompt_max_requests),
            "decode_max_tokens": list(profile.batch_limits.decode_max_tokens),
        }
    return section


def profile_from_dict(section: object, *, name: str) -> ComputeProfile:
    """The compute profile that `profile_to_dict` wrote. Raises InvalidProblem."""
    return _compute_profile(Section.at(section, f"compute profile {name!r}"), name)


def _model_to_dict(model: ModelSpec) -> dict[str, object]:
    return {key: value for key, value in asdict(model).items() if value is not None}


def _node_to_dict(node: Node) -> dict[str, object]:
    section: dict[str, object] = asdict(node)
    if node.price_per_hour is None:
        del section["price_per_hour"]
    if node.gpus == 1:
        del section["gpus"]
    return section


def _shared_to_dict(cluster: Cluster) -> dict[str, object]:
    """The optional key, only where it says something."""
    if not cluster.shared:
        return {}
    return {
        "shared": [asdict(shared) | {"members": list(shared.members)} for shared in cluster.shared]
    }


def _model(section: Section) -> ModelSpec:
    section.allow_only(
        "name",
        "num_layers",
        "activation_bytes_per_token",
        "token_bytes",
        "bytes_per_layer",
        "num_heads",
        "num_kv_heads",
    )
    return ModelSpec(
        name=section.name("name"),
        num_layers=section.integer("num_layers", minimum=1),
        activation_bytes_per_token=section.positive_number("activation_bytes_per_token"),
        token_bytes=section.positive_number("token_bytes"),
        bytes_per_layer=section.positive_number("bytes_per_layer"),
        num_heads=_count(section, "num_heads"),
        num_kv_heads=_count(section, "num_kv_heads"),
    )


def _count(section: Section, key: str) -> int | None:
    return section.integer(key, minimum=1) if section.has(key) else None


def _workload(section: Section) -> Workload:
    section.allow_only("mean_prompt_tokens", "mean_output_tokens")
    return Workload(
        mean_prompt_tokens=section.positive_number("mean_prompt_tokens"),
        mean_output_tokens=section.positive_number("mean_output_tokens"),
    )


def _compute_profiles(top: Section) -> Iterator[ComputeProfile]:
    profiles = top.section("compute_profiles")
    for name in profiles.values:
        yield _compute_profile(profiles.section(name), name)


def _compute_profile(section: Section, name: str) -> ComputeProfile:
    section.allow_only(
        "gpu",
        "vram_bytes",
        "max_layers",
        "tokens_per_s",
        "kv_capacity_token_layers",
        "layer_times",
        "batch_limits",
        "price_per_hour",
        "instance_times",
        "memory",
    )
    return ComputeProfile(
        name=name,
        gpu=section.text("gpu"),
        vram_bytes=section.positive_number("vram_bytes"),
        max_layers=section.integer("max_layers", minimum=0),
        tokens_per_s=section.numbers_from_zero("tokens_per_s"),
        kv_capacity_token_layers=section.numbers_from_zero("kv_capacity_token_layers"),
        layer_times=_layer_times(section) if section.has("layer_times") else None,
        batch_limits=_batch_limits(section) if section.has("batch_limits") else None,
        price_per_hour=_price(section),
        instance_times=_instance_times(section) if section.has("instance_times") else {},
        memory=memory_from(section.section("memory")) if section.has("memory") else None,
    )


def _instance_times(profile: Section) -> dict[int, InstanceTimes]:
    """{"2": {"prefill": [p1..p4], "decode": [p5..p8]}} by the tensor-parallel degree."""
    section = profile.section("instance_times")
    found = {}
    for key in section.values:
        degree = int(key) if key.isdecimal() and len(key) < 6 else 0
        if degree < 1:
            raise InvalidProblem(
                f"{section.path_of(key)} is no tensor-parallel degree; use 1, 2, 4 …, in quotes"
            )
        found[degree] = record_from(section.section(key), InstanceTimes)
    return found


def _price(section: Section) -> float | None:
    key = "price_per_hour"
    return section.positive_number(key) if section.has(key) else None


def _layer_times(profile: Section) -> LayerTimes:
    section = profile.section("layer_times")
    section.allow_only("prompt", "decode", *FIXED_KEYS)
    fixed = {key: section.number_from_zero(key) for key in FIXED_KEYS if section.has(key)}
    try:
        return LayerTimes(
            prompt=_points(section, "prompt"), decode=_points(section, "decode"), **fixed
        )
    except InvalidProblem as error:
        raise InvalidProblem(f"{profile.path}: {error}") from None


def _points(section: Section, key: str) -> Points:
    points = []
    for index, pair in enumerate(section.items(key)):
        path = f"{section.path_of(key)}[{index}]"
        if not isinstance(pair, list) or len(pair) != 2:
            raise wrong_type(path, pair, "a pair [tokens, seconds]")
        points.append((finite_number(pair[0], f"{path}[0]"), finite_number(pair[1], f"{path}[1]")))
    return tuple(points)


def _batch_limits(profile: Section) -> BatchLimits:
    section = profile.section("batch_limits")
    section.allow_only("prompt_max_requests", "decode_max_tokens")
    return BatchLimits(
        prompt_max_requests=_counts(section, "prompt_max_requests"),
        decode_max_tokens=_counts(section, "decode_max_tokens"),
    )


def _counts(section: Section, key: str) -> tuple[int, ...]:
    return tuple(
        integer(value, f"{section.path_of(key)}[{index}]", minimum=1)
        for index, value in enumerate(section.items(key))
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
        section.allow_only("name", "region", "compute_profile", "price_per_hour", "gpus")
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
        yield Node(
            name=name,
            region=section.name("region"),
            compute_profile=profile,
            price_per_hour=_price(section),
            gpus=section.integer("gpus", minimum=1) if section.has("gpus") else 1,
        )


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
            direction=cast(SharedDirection, one_of(section, "direction", SharedDirection)),
            bandwidth_bytes_per_s=section.positive_number("bandwidth_bytes_per_s"),
            scope=cast(SharedScope, one_of(section, "scope", SharedScope)),
        )
