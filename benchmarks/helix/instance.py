"""A published cluster: its problem with measured times, and the placements of every method."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from planner.commands.files import read_problem, read_text
from planner.domain.layer_times import BatchLimits
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.domain.profile import ComputeProfile
from planner.placers.base import equal_split
from planner.serialization import published_placements_from_text
from planner.timing import attach_layer_times

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """One separate pipeline of a baseline.

    `requests` is the concurrency that was set for it by hand, `online_share` its share of what is
    offered online. `kv_token_layers` is the KV room that it was given, by layers held.
    """

    placement: Placement
    kv_token_layers: Mapping[str, Mapping[int, float]]
    requests: int
    online_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """`figures` is the instance's part of figures.json; `placements` are by method."""

    name: str
    problem: Problem
    placements: Mapping[str, Placement]
    separate: tuple[Pipeline, ...]
    separate_plus: tuple[Pipeline, ...]
    figures: Mapping[str, Any]


def read_instance(
    problem_file: Path, profiles_folder: Path, figures: Mapping[str, Any]
) -> Instance:
    """The problem, `*.published.json` beside it, and layer times and limits of the folder."""
    problem = attach_layer_times(
        read_problem(problem_file),
        layer_times_csv=read_text(profiles_folder / "layer_times.csv"),
        batch_limits_json=read_text(profiles_folder / "kv_and_batch_limits.json"),
        name_hint="layer_times.csv",
    )
    if problem.name not in figures["problems"]:
        known = ", ".join(figures["problems"])
        raise ValueError(f"{problem_file}: no figures of {problem.name!r}; give one of: {known}")
    own = figures["problems"][problem.name]
    published_file = problem_file.with_suffix(".published.json")
    published = published_placements_from_text(
        read_text(published_file),
        name_hint=str(published_file),
        num_layers=problem.model.num_layers,
    )
    return Instance(
        name=problem.name,
        problem=problem,
        placements={
            method: published[name].placement for method, name in own["placements"].items()
        },
        separate=tuple(separate_pipeline(problem, row) for row in own["separate"]),
        separate_plus=tuple(
            separate_pipeline(problem, row) for row in own.get("separate_plus", ())
        ),
        figures=own,
    )


def separate_pipeline(problem: Problem, row: Mapping[str, Any]) -> Pipeline:
    """Equal stages over the nodes of the row's kinds, in the problem's order kind by kind."""
    names: list[str] = []
    for kind, count in row["kinds"].items():
        alike = [node.name for node in problem.cluster.nodes if node.compute_profile == kind]
        if len(alike) < count:
            raise ValueError(f"{problem.name} has {len(alike)} nodes of {kind!r}; {count} are used")
        names += alike[:count]
    stages = equal_split(problem.model.num_layers, len(names))
    room = {int(layers): float(kv) for layers, kv in row["kv_token_layers"].items()}
    return Pipeline(
        placement=Placement(layers=dict(zip(names, stages, strict=True))),
        kv_token_layers=dict.fromkeys(row["kinds"], room),
        requests=row["requests"],
        online_share=row["online_share"],
    )


def with_room_for(problem: Problem, pipelines: Sequence[Pipeline]) -> Problem:
    """The problem without the rule that weights take half of the memory at most.

    The baseline's pipelines break that rule. Profiles are continued to the layers that they hold,
    with the KV room that they were given and the largest holding's throughput and batch limits.
    """
    profiles = dict(problem.compute_profiles)
    for pipeline in pipelines:
        for kind, room in pipeline.kv_token_layers.items():
            profiles[kind] = _continued(profiles[kind], room)
    return replace(problem, compute_profiles=profiles)


def _continued(profile: ComputeProfile, room: Mapping[int, float]) -> ComputeProfile:
    most = max(profile.max_layers, *room)
    kv = list(profile.kv_capacity_token_layers[: profile.max_layers])
    kv += [kv[-1]] * (most - len(kv))
    for layers, token_layers in room.items():
        kv[layers - 1] = token_layers
    limits = profile.batch_limits
    if limits is not None:
        limits = BatchLimits(
            prompt_max_requests=_extended(limits.prompt_max_requests, most),
            decode_max_tokens=_extended(limits.decode_max_tokens, most),
        )
    return replace(
        profile,
        max_layers=most,
        tokens_per_s=_extended(profile.tokens_per_s[: profile.max_layers], most),
        kv_capacity_token_layers=tuple(kv),
        batch_limits=limits,
    )


def _extended(values: tuple[T, ...], length: int) -> tuple[T, ...]:
    return values + (values[-1],) * (length - len(values))
