"""Translates a problem, a placement and a policy into the numbers an engine runs on."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from planner.capacity import kv_room_token_layers, shared_bytes_per_token
from planner.domain.cluster import COORDINATOR
from planner.domain.errors import InvalidPlacement
from planner.domain.layer_times import LayerTimes, Points
from planner.domain.pipeline import Pipeline, PipelineStage
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Problem
from planner.domain.serving_policy import ReturnPath, ServingPolicy
from planner.simulator.compiled_engine import Engine
from planner.simulator.engine import (
    NEVER,
    SAME_NODE,
    VIA_COORDINATOR,
    EngineSetup,
    NodeSetup,
    StageVisit,
    StepTimes,
)
from planner.timing import latency_s, layer_times_of


class LinkMissing(InvalidPlacement):
    """A pipeline needs a link that the cluster does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbering:
    """Nodes by number, and where requests may enter each: first layers of its segments."""

    names: tuple[str, ...]
    number_of: Mapping[str, int]
    entries: tuple[tuple[int, ...], ...]


def check_coverage(problem: Problem, placement: Placement) -> None:
    """Raise InvalidPlacement naming the first layer that a component's nodes do not hold."""
    for component in placement.components or (frozenset(placement.layers),):
        held = {
            layer
            for name in component
            for layer in range(placement.layers[name].first, placement.layers[name].end)
        }
        missing = [layer for layer in range(problem.model.num_layers) if layer not in held]
        if missing:
            of_component = (
                f" of the component with {min(component)!r}" if placement.components else ""
            )
            raise InvalidPlacement(
                f"no node{of_component} holds layer {missing[0]} ({len(missing)} of "
                f"{problem.model.num_layers} layers are missing); place every layer"
            )


def numbering_of(placement: Placement, *, partial_inference: bool) -> Numbering:
    """Nodes that hold layers, by name; with partial inference cut where another node ends."""
    names = tuple(sorted(placement.layers))
    ends = {held.end for held in placement.layers.values()} if partial_inference else set()
    return Numbering(
        names=names,
        number_of={name: number for number, name in enumerate(names)},
        entries=tuple(
            (held.first, *sorted(end for end in ends if held.first < end < held.end))
            for held in (placement.layers[name] for name in names)
        ),
    )


def engine_setup(
    problem: Problem,
    *,
    placement: Placement,
    numbering: Numbering,
    policy: ServingPolicy,
    page_tokens: int,
    measures_waits: bool,
    host_copy_s_per_byte: float,
) -> EngineSetup:
    """Input of an engine. Raises InvalidPlacement for a node without required times or limits."""
    nodes = []
    for name, entries in zip(numbering.names, numbering.entries, strict=True):
        held = placement.layers[name]
        limits = problem.profile_of(name).batch_limits if policy.published_batch_limits else None
        measured = layer_times_of(problem, name)
        has_head = held.end == problem.model.num_layers
        times = measured.held(len(held), has_head=has_head)
        home = problem.cluster.link_between(name, COORDINATOR)
        nodes.append(
            NodeSetup(
                segment_layers=tuple(
                    after - first
                    for first, after in zip(entries, (*entries[1:], held.end), strict=True)
                ),
                prompt=step_times(times, "prompt"),
                decode=step_times(times, "decode"),
                prompt_limit=limits.prompt_max_requests[len(held) - 1] if limits else NEVER,
                decode_limit=limits.decode_max_tokens[len(held) - 1] if limits else NEVER,
                pages=kv_pages(problem, name, held, page_tokens=page_tokens),
                refusal_s=latency_s(problem, home) if home is not None else 0.0,
                least_decodes=measured.least_decodes,
                shared_s=measured.shared_s(has_head=has_head) / len(held),
            )
        )
    model = problem.model
    return EngineSetup(
        nodes=tuple(nodes),
        chunk_tokens=policy.prompt_chunk_tokens or 0,
        most_micro_batches=policy.measured_micro_batches or 0.0,
        cap_divisor=policy.decode_cap_divisor or 0.0,
        cap_floor=policy.decode_cap_floor,
        grouped=policy.messages == "grouped",
        decodes_first=policy.transmission == "decode_first",
        piece_bytes=policy.piece_bytes or 0.0,
        page_tokens=page_tokens,
        measures_waits=measures_waits,
        overhead_s=policy.step_overhead_s,
        copy_s_per_token=model.activation_bytes_per_token * host_copy_s_per_byte,
        activation_bytes=model.activation_bytes_per_token,
        token_bytes=model.token_bytes,
        shared_bytes_per_s=tuple(shared.bandwidth_bytes_per_s for shared in problem.cluster.shared),
    )


def kv_pages(problem: Problem, node: str, held: LayerRange, *, page_tokens: int) -> int:
    """The pages of a node that holds these layers, as a stage of the runtime counts them."""
    return int(kv_room_token_layers(problem, node, held)) // page_tokens


class Links:
    """The engine's links, made when a pipeline first uses them."""

    def __init__(
        self,
        problem: Problem,
        engine: Engine,
        numbering: Numbering,
        *,
        return_path: ReturnPath,
    ) -> None:
        self._problem, self._engine, self._numbering = problem, engine, numbering
        self._return_path = return_path
        self._members = [
            (shared, problem.cluster.members_of(shared)) for shared in problem.cluster.shared
        ]
        self._number_of: dict[tuple[str, str], int] = {}
        self._visits: dict[tuple[str, str, int], StageVisit] = {}  # by whence, node, first layer

    @property
    def ends(self) -> tuple[tuple[str, str], ...]:
        """(source, target) of every link used so far, by number."""
        return tuple(self._number_of)

    def between(self, source: str, target: str) -> int:
        """Number of the link between two nodes. Raises LinkMissing."""
        number = self._number_of.get((source, target))
        if number is None:
            link = self._problem.cluster.link_between(source, target)
            if link is None:
                raise LinkMissing(
                    f"a pipeline goes from {source!r} to {target!r}, but the cluster has no link "
                    "there; give no routing weight to that hop"
                )
            number = self._engine.add_link(
                source=self._vertex(source),
                target=self._vertex(target),
                bandwidth_bytes_per_s=link.bandwidth_bytes_per_s,
                latency_s=latency_s(self._problem, link),
                shares=self._shares(source, target),
            )
            self._number_of[source, target] = number
        return number

    def _shares(self, source: str, target: str) -> list[int]:
        """Numbers of the shared bandwidths that traffic from source to target uses."""
        return [
            number
            for number, (shared, members) in enumerate(self._members)
            if shared_bytes_per_token(self._problem, shared, source, target, members=members) > 0
        ]

    def _vertex(self, name: str) -> int:
        return self._numbering.number_of.get(name, len(self._numbering.names))

    def back(self, last: str, first: str) -> int:
        """Link that returns a token from the last stage to the first, or a code for no link."""
        if self._return_path == "coordinator":
            return VIA_COORDINATOR
        if last == first:
            return SAME_NODE
        if self._problem.cluster.link_between(last, first) is None:
            return VIA_COORDINATOR
        return self.between(last, first)

    def visits(self, pipeline: Pipeline) -> tuple[StageVisit, ...]:
        """The stages of a pipeline as an engine knows them."""
        visits = []
        before = COORDINATOR
        for stage in pipeline.stages:
            key = (before, stage.node, stage.first)
            visit = self._visits.get(key)
            if visit is None:
                visit = self._visits[key] = self._visit(before, stage)
            visits.append(visit)
            before = stage.node
        return tuple(visits)

    def _visit(self, before: str, stage: PipelineStage) -> StageVisit:
        node = self._numbering.number_of[stage.node]
        entries = self._numbering.entries[node]
        if stage.first not in entries:
            raise InvalidPlacement(
                f"a pipeline enters {stage.node!r} at layer {stage.first}; requests may enter at "
                f"{', '.join(map(str, entries))} (more with partial inference)"
            )
        return StageVisit(
            node=node,
            segment=entries.index(stage.first),
            layers=stage.end - stage.first,
            link=self.between(before, stage.node),
        )


def step_times(times: LayerTimes, phase: str) -> StepTimes:
    """Seconds by whole tokens up to the last measured point, at least for one token."""
    return _step_times(times.prompt if phase == "prompt" else times.decode)


@functools.lru_cache(maxsize=256)
def _step_times(points: Points) -> StepTimes:
    tokens = np.array([0.0, *(point[0] for point in points)])
    seconds = np.array([0.0, *(point[1] for point in points)])
    slope = max(0.0, seconds[-1] - seconds[-2]) / (tokens[-1] - tokens[-2])
    whole = np.arange(max(1, int(tokens[-1])) + 1, dtype=np.float64)
    return StepTimes(seconds=np.interp(whole, tokens, seconds), slope_s=float(slope))
