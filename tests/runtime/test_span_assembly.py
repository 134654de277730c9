"""One time line from the clocks of many, against journeys whose true times are known."""

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from planner.domain.pipeline import Pipeline, PipelineStage
from runtime.coordinator.request_life import Origin, RequestLife
from runtime.coordinator.span_assembly import MAX_BARS, TimeLine, assemble
from runtime.coordinator.tracing import EXCHANGES_KEPT, ClockOffsets, Exchange
from runtime.protocol.request_trace import PartKind, PartPhase
from runtime.protocol.stage_spans import ChunkSpan, StageSpans

COMPUTE, TRANSFER, WAIT = PartKind.COMPUTE, PartKind.TRANSFER, PartKind.WAIT
QUEUE_S = 0.4


@dataclass(kw_only=True)
class Truth:
    """A request that was made up second by second, and what everybody saw of it."""

    life: RequestLife
    told: dict[str, StageSpans]
    clocks: dict[str, float]
    transfers: dict[tuple[str, str], float]
    computes: dict[str, float]


def truth(*, stages: int, tokens: int, seed: int, unseen: bool = False) -> Truth:
    """`unseen`: every stage computes something else whenever rows come, and looks only after it."""
    rng = random.Random(seed)
    names = [f"n{index}" for index in range(stages)]
    clocks = {name: rng.uniform(-1e5, 1e5) for name in names}
    arrived_s = 5_000.0
    now_s = arrived_s + QUEUE_S
    came, chunks, rounds = {}, {}, {name: [] for name in names}
    unseen_s = dict.fromkeys(names, 0.0)
    transfers, computes = defaultdict(float), defaultdict(float)
    token_times = []

    def travel(source: str, target: str) -> None:
        nonlocal now_s
        way_s = 0.010 + rng.uniform(0.0, 0.001)
        now_s += way_s
        if source != target:
            transfers[source, target] += way_s

    def look(name: str) -> float:
        """Waits for the step that runs; returns since when it had not looked."""
        nonlocal now_s
        hidden_s = rng.uniform(0.0, 0.03) if unseen else 0.0
        now_s += hidden_s
        return hidden_s + (rng.uniform(0.0, 0.01) if unseen else 0.0)

    def compute(name: str, seconds: float) -> tuple[float, float]:
        nonlocal now_s
        now_s += rng.uniform(0.0, 0.002)
        began_s = now_s
        now_s += seconds
        computes[name] += seconds
        return began_s + clocks[name], now_s + clocks[name]

    before = "coordinator"
    for name in names:
        travel(before, name)
        unseen_s[name] = look(name)
        came[name] = now_s + clocks[name]
        began_s, ended_s = compute(name, 0.2)
        chunks[name] = (ChunkSpan(began_s=began_s, ended_s=ended_s, n_tokens=100),)
        before = name
    for token in range(tokens):
        left_s = now_s
        token_times.append(now_s + 0.012)
        if token == tokens - 1:
            transfers[before, "coordinator"] += 0.012
            break
        for name in names:
            travel(before, name)
            hidden_s = look(name)
            came_s = now_s + clocks[name]
            began_s, ended_s = compute(name, 0.02)
            rounds[name].append((came_s, hidden_s, began_s, ended_s))
            before = name
        assert now_s > left_s
    told = {
        name: StageSpans(
            heard_s=0.0,
            heard_unseen_s=0.0,
            told_s=0.0,
            first_s=came[name],
            last_s=came[name],
            last_unseen_s=unseen_s[name],
            tail_compute_s=0.2,
            chunks=chunks[name],
            rounds=np.array(rounds[name]).reshape(-1, 4),
        )
        for name in names
    }
    life = life_of(arrived_s=arrived_s, routed_s=arrived_s + QUEUE_S, nodes=names)
    note_tokens(life, token_times)
    return Truth(life=life, told=told, clocks=clocks, transfers=transfers, computes=computes)


def life_of(*, arrived_s: float, routed_s: float, nodes: Sequence[str]) -> RequestLife:
    life = RequestLife(arrived_at=arrived_s, origin=Origin())
    life.follow(pipeline_of(nodes), now=routed_s)
    return life


def pipeline_of(nodes: Sequence[str]) -> Pipeline:
    return Pipeline(
        stages=tuple(
            PipelineStage(node=node, first=at, end=at + 1) for at, node in enumerate(nodes)
        )
    )


def note_tokens(life: RequestLife, times_s: Iterable[float]) -> None:
    for at_s in times_s:
        life.note_token(now=at_s)


def seconds(line: TimeLine, kind: PartKind, node: str, to: str | None = None) -> float:
    return sum(
        part.seconds for part in line.parts if (part.kind, part.node, part.to) == (kind, node, to)
    )


def end_to_end_s(life: RequestLife) -> float:
    return life.token_times[-1] - life.arrived_at


def line_of(made: Truth, offsets: dict[str, float]) -> TimeLine:
    return assemble(made.life, made.told, offsets, ended_s=made.life.token_times[-1])


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("error_s", [0.0, 0.002, 0.2])
def test_parts_add_up_to_the_end_to_end_time_however_wrong_the_clocks_are(
    seed: int, error_s: float
) -> None:
    rng = random.Random(seed)
    made = truth(stages=1 + seed % 4, tokens=1 + seed * 3, seed=seed, unseen=seed % 2 == 0)
    offsets = {name: clock + rng.uniform(-error_s, error_s) for name, clock in made.clocks.items()}
    line = line_of(made, offsets)
    total_s = sum(part.seconds for part in line.parts)
    assert total_s == pytest.approx(end_to_end_s(made.life), abs=1e-6)
    if error_s <= 0.002:  # less than a transfer takes: nothing may last less than no time
        assert all(part.seconds >= -1e-9 for part in line.parts)


@pytest.mark.parametrize("seed", range(5))
def test_each_part_is_where_the_time_went(seed: int) -> None:
    made = truth(stages=3, tokens=40, seed=seed)
    line = line_of(made, made.clocks)
    assert seconds(line, PartKind.QUEUE, "coordinator") == pytest.approx(QUEUE_S)
    for name, computed_s in made.computes.items():
        assert seconds(line, COMPUTE, name) == pytest.approx(computed_s)
    for (source, target), way_s in made.transfers.items():
        assert seconds(line, TRANSFER, source, target) == pytest.approx(way_s, rel=0.1)
    assert {part.kind for part in line.parts} == {PartKind.QUEUE, COMPUTE, WAIT, TRANSFER}


@pytest.mark.parametrize("seed", range(5))
def test_rows_that_came_while_a_node_computed_are_not_held_against_the_link(seed: int) -> None:
    """15 ms of every round are spent unseen in the socket of each node, 10.5 ms on each link."""
    made = truth(stages=3, tokens=200, seed=seed, unseen=True)
    line = line_of(made, made.clocks)
    for (source, target), way_s in made.transfers.items():
        if source != "coordinator" and target != "coordinator":
            assert seconds(line, TRANSFER, source, target) == pytest.approx(way_s, rel=0.15)


def test_bars_lie_within_the_request_and_hold_every_round() -> None:
    made = truth(stages=2, tokens=150, seed=1)
    line = line_of(made, made.clocks)
    for row in line.rows:
        assert 0 < len(row.spans) <= MAX_BARS
        assert all(begins <= ends for begins, ends, _, _ in row.spans)
        assert row.spans[-1][1] <= end_to_end_s(made.life) + 1e-6
    (decodes,) = (
        row
        for row in line.rows
        if (row.node, row.kind, row.phase) == ("n1", COMPUTE, PartPhase.DECODE)
    )
    assert sum(count for *_, count in decodes.spans) == 149


def test_a_stage_that_ran_further_than_was_wanted_is_cut_to_what_was() -> None:
    made = truth(stages=2, tokens=30, seed=3)
    del made.life.token_times[10:]
    line = line_of(made, made.clocks)
    total_s = sum(part.seconds for part in line.parts)
    assert total_s == pytest.approx(end_to_end_s(made.life))
    assert not any(part.kind == PartKind.UNMEASURED for part in line.parts)


def test_an_attempt_that_was_begun_anew_is_lost_time() -> None:
    made = truth(stages=2, tokens=5, seed=4)
    began_s = made.life.arrived_at
    longer = life_of(arrived_s=began_s - 3.0, routed_s=began_s - 2.0, nodes=["n0"])
    note_tokens(longer, [began_s - 1.0])
    longer.queued_at = began_s
    longer.follow(pipeline_of(["n0", "n1"]), now=began_s + QUEUE_S)
    note_tokens(longer, made.life.token_times)
    line = line_of(replace(made, life=longer), made.clocks)
    assert seconds(line, PartKind.LOST, "coordinator") == pytest.approx(2.0)
    assert seconds(line, PartKind.QUEUE, "coordinator") == pytest.approx(1.0 + QUEUE_S)
    assert sum(part.seconds for part in line.parts) == pytest.approx(end_to_end_s(longer))


def test_what_no_stage_told_of_is_said_to_be_unmeasured() -> None:
    made = truth(stages=2, tokens=5, seed=5)
    line = line_of(replace(made, told={"n0": made.told["n0"]}), made.clocks)
    unmeasured_s = seconds(line, PartKind.UNMEASURED, "coordinator")
    assert unmeasured_s == pytest.approx(end_to_end_s(made.life) - QUEUE_S)


def test_a_request_that_never_left_the_queue_has_only_that_part() -> None:
    waiting = RequestLife(arrived_at=10.0, origin=Origin())
    (part,) = assemble(waiting, {}, {}, ended_s=70.0).parts
    assert (part.kind, part.seconds) == (PartKind.QUEUE, 60.0)


def exchange(
    *, clock: float, there_s: float, back_s: float, waited_s: float = 0.0, unseen_s: float = 0.0
) -> Exchange:
    """It lay at the node for `waited_s` of the `unseen_s` in which the node did not look."""
    heard_s = 100.0 + there_s + waited_s
    return Exchange(
        asked_s=100.0,
        heard_s=heard_s + clock,
        unseen_s=unseen_s,
        told_s=heard_s + 3.0 + clock,
        answered_s=heard_s + 3.0 + back_s,
    )


def test_idle_nodes_tell_how_clocks_differ() -> None:
    offsets = ClockOffsets()
    for there_s, back_s in ((0.012, 0.012), (0.011, 0.01), (0.03, 0.012)):
        offsets.add("a", exchange(clock=500.0, there_s=there_s, back_s=back_s))
    assert offsets.of("a") == pytest.approx(500.0, abs=0.002)


@pytest.mark.parametrize("way_s", [0.0005, 0.05])
def test_a_node_that_always_computes_tells_it_too(way_s: float) -> None:
    """Questions lie there for up to a step of 100 ms; answers come at once."""
    rng = random.Random(1)
    offsets = ClockOffsets()
    for _ in range(EXCHANGES_KEPT):
        waited_s = rng.uniform(0.0, 0.1)
        offsets.add(
            "a",
            exchange(clock=500.0, there_s=way_s, back_s=way_s, waited_s=waited_s, unseen_s=0.1),
        )
    assert offsets.of("a") == pytest.approx(500.0, abs=1.01 * way_s)


def test_clocks_that_drift_are_followed_and_those_of_restarted_machines_forgotten() -> None:
    offsets = ClockOffsets()
    offsets.add("a", exchange(clock=502.0, there_s=0.01, back_s=0.01))
    for _ in range(EXCHANGES_KEPT):
        offsets.add("a", exchange(clock=501.0, there_s=0.02, back_s=0.02))
    assert offsets.of("a") == pytest.approx(501.0)
    offsets.forget("a")
    with pytest.raises(KeyError):
        offsets.of("a")
