"""The same requests take the same pipelines in the simulator and in the coordinator.

A simulation is recorded; the coordinator's dispatcher then hears of the same arrivals and tokens in
the same order from scripted stages, and decides everything else itself.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from coordinator_doubles import (
    RANGES,
    WEIGHTS,
    Clock,
    ScriptedStages,
    make_dispatcher,
    make_serving,
    write_checkpoint,
)

from planner.domain.cluster import SINK, SOURCE, Cluster, Link, Node
from planner.domain.model_spec import ModelSpec
from planner.domain.pipeline import Pipeline, PipelineStage
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Problem, Workload
from planner.domain.profile import ComputeProfile
from planner.domain.serving_policy import ServingPolicy
from planner.routers.base import Router
from planner.routers.choice import ROUTER_NAMES, RouterName, make_router
from planner.simulator.compiled_engine import Engine
from planner.simulator.engine import EngineSetup, Occurrence, OccurrenceKind
from planner.simulator.simulate import SimulationOptions, simulate
from planner.workload.demand import Arrivals
from planner.workload.request import Lengths, Request
from runtime.protocol.data import Entry, Kind, Reason, Sampling

# Of 4 tokens: a few requests fill a node, and c is too small for the longest.
PAGES = {"a": 300, "b": 300, "c": 65, "d": 300}
EOS = 257
WHOLE = Placement(
    layers={name: LayerRange(first=first, end=end) for name, (first, end) in RANGES.items()}
)
POLICY = ServingPolicy(
    prompt_chunk_tokens=8,
    decode_cap_divisor=None,
    published_batch_limits=False,
    messages="grouped",
    transmission="decode_first",
    return_path="first_stage",
    kv_high_water=0.9,
)
APART = {
    "placement": Placement(
        layers={
            "a": LayerRange(first=0, end=4),
            "b": LayerRange(first=0, end=2),
            "c": LayerRange(first=2, end=6),
            "d": LayerRange(first=4, end=6),
        },
        components=(frozenset({"a", "d"}), frozenset({"b", "c"})),
    ),
    "routing_weights": {
        SOURCE: {"a": 2.0, "b": 1.0},
        "a": {"d": 1.0},
        "b": {"c": 1.0},
        "c": {SINK: 1.0},
        "d": {SINK: 1.0},
    },
}


class Arrived(NamedTuple):
    """The next request of the list came."""

    time_s: float


class Recorder:
    """An engine that notes what it was told and what it told, in order."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.events: list[Arrived | tuple[int, Occurrence]] = []
        self.lengths: list[tuple[int, int]] = []
        self._number_of: dict[int, int] = {}  # the engine's number -> how many were admitted before
        self.arrivals: list[float] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._engine, name)

    def admit(self, *, prompt_tokens: int, output_tokens: int) -> int:
        number = self._engine.admit(prompt_tokens=prompt_tokens, output_tokens=output_tokens)
        self._number_of[number] = len(self.lengths)
        self.lengths.append((prompt_tokens, output_tokens))
        return number

    def advance(self, until_s: float) -> Occurrence | None:
        occurrence = self._engine.advance(until_s)
        if occurrence is not None:
            self.events.append((self._number_of[occurrence.request], occurrence))
        elif until_s in self.arrivals:
            self.arrivals.remove(until_s)
            self.events.append(Arrived(until_s))
        return occurrence


def requests(count: int) -> list[Request]:
    """Far more at once than there is room for, of very different lengths."""
    chance = random.Random(4)
    arrival, made = 0.0, []
    for _ in range(count):
        arrival += chance.expovariate(30.0)
        lengths = Lengths(prompt_tokens=chance.randint(3, 60), output_tokens=chance.randint(2, 40))
        made.append(Request(arrival_s=arrival, lengths=lengths))
    return made


def problem() -> Problem:
    speeds = (900.0, 450.0, 300.0, 225.0, 180.0, 150.0)
    return Problem(
        name="four",
        model=ModelSpec(
            name="tiny",
            num_layers=6,
            activation_bytes_per_token=1000,
            token_bytes=4,
            bytes_per_layer=1e6,
        ),
        workload=Workload(mean_prompt_tokens=20, mean_output_tokens=20),
        compute_profiles={
            name: ComputeProfile(
                name=name,
                gpu="test",
                vram_bytes=1e9,
                max_layers=len(speeds),
                tokens_per_s=speeds,
                kv_capacity_token_layers=(PAGES[name] * 4.0,) * len(speeds),
            )
            for name in RANGES
        },
        cluster=Cluster(
            name="four",
            coordinator_region="here",
            nodes=tuple(Node(name=name, region="here", compute_profile=name) for name in RANGES),
            region_links=(
                Link(source="here", target="here", bandwidth_bytes_per_s=1e6, latency_s=0.002),
            ),
        ),
    )


def simulated(
    wanted: list[Request], placement: Placement, weights: object, router: RouterName
) -> tuple[Recorder, tuple[Pipeline, ...]]:
    recorders: list[Recorder] = []
    pipelines: list[Pipeline] = []

    def routing(*arguments: Any, **options: Any) -> Router:
        """A router that adds what it chooses to the pipelines."""
        chosen = make_router(*arguments, **options)
        choose = chosen.choose

        def recorded(*of: Any, **around: Any) -> Pipeline | None:
            pipeline = choose(*of, **around)
            if pipeline is not None:
                pipelines.append(pipeline)
            return pipeline

        chosen.choose = recorded
        return chosen

    def recording(setup: EngineSetup) -> Recorder:
        recorders.append(Recorder(Engine(setup)))
        recorders[0].arrivals = [request.arrival_s for request in wanted]
        return recorders[0]

    forecast = simulate(
        problem(),
        placement=placement,
        routing_weights=weights,
        demand=Arrivals(requests=iter(wanted)),
        policy=POLICY,
        partial_inference=True,
        router=router,
        options=SimulationOptions(warm_up_s=0.0, window_s=1e4, page_tokens=4, seed=1),
        engine_maker=recording,
        router_maker=routing,
    )
    assert forecast.requests_finished == len(wanted)
    assert forecast.requests_preempted > 0
    assert len(pipelines) == len(wanted) + forecast.requests_preempted
    return recorders[0], tuple(pipelines)


def replayed(
    recorder: Recorder, wanted: list[Request], checkpoint: Path, router: RouterName, plan: object
) -> list[Pipeline]:
    """What the dispatcher chooses, in the order of its prompts."""
    stages = ScriptedStages(lambda prompt: ())
    dispatcher, _ = make_dispatcher(stages, clock=Clock())
    routing_clock = Clock()
    serving = make_serving(
        checkpoint, router=router, clock=routing_clock, max_queued_requests=len(wanted), **plan
    )
    dispatcher.serve(serving)
    for node, pages in PAGES.items():
        stages.report(node, pages=pages)
    live, coming = {}, iter(wanted)

    def prompts() -> Iterator[Entry]:
        """Of every request, and of those that began anew once more."""
        for _, message in stages.sent:
            if message.kind == Kind.PROMPT:
                yield message.entries[0]

    for event in recorder.events:
        if isinstance(event, Arrived):
            routing_clock.now = event.time_s
            lengths = next(coming).lengths
            request = dispatcher.submit(
                serving,
                prompt_ids=range(lengths.prompt_tokens),
                sampling=Sampling(
                    temperature=0,
                    top_p=1,
                    top_k=0,
                    seed=1,
                    max_tokens=10_000,
                    stop_token_ids=(EOS,),
                ),
                stop_strings=(),
            )
            live[request.id] = request
            continue
        order, occurrence = event
        routing_clock.now = occurrence.time_s
        admitted = list(dict.fromkeys(entry.request for entry in prompts()))
        request = live[admitted[order]]
        prompt_tokens, output_tokens = recorder.lengths[order]
        assert len(request.prompt_ids) == prompt_tokens
        while request.next_position < occurrence.tokens:
            is_last = len(request.token_ids) + 1 == output_tokens
            stages.emit((request.id, request.epoch), EOS if is_last else 60)
        if occurrence.kind is OccurrenceKind.PREEMPTED:
            stages.refuse((request.id, request.epoch), Reason.PREEMPTED)
    assert dispatcher.requests_running == dispatcher.requests_waiting == 0
    return [
        Pipeline(
            stages=tuple(
                PipelineStage(node=hop.node, first=hop.first, end=hop.end)
                for hop in entry.route.hops
            )
        )
        for entry in prompts()
        if entry.route is not None
    ]


@pytest.mark.parametrize("router", ROUTER_NAMES)
@pytest.mark.parametrize("plan", [{}, APART], ids=["one component", "two components"])
def test_the_coordinator_routes_a_list_of_requests_as_the_simulator_does(
    tmp_path: Path, router: RouterName, plan: dict[str, object]
) -> None:
    wanted = requests(120)
    recorder, expected = simulated(
        wanted, plan.get("placement", WHOLE), plan.get("routing_weights", WEIGHTS), router
    )
    checkpoint = write_checkpoint(tmp_path / "checkpoint")
    assert replayed(recorder, wanted, checkpoint, router, plan) == list(expected)
    assert len(set(expected)) > 1
