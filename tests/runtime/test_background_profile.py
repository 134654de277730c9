"""A node is measured when it is wanted and while it has nothing to do."""

import asyncio
import io
import itertools
import os
import random
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace

import fake_profiler
import pytest
from fake_web import PATIENCE_S

from planner.domain.node_memory import KvMinimum
from planner.latency_fit import Timing, fit_latency_model
from runtime.agent.profiling import (
    Profiling,
    Traffic,
    leave_to_measure,
    node_traffic,
    stage_traffic,
)
from runtime.agent.reconcile import LocalState
from runtime.agent.supervisor import StageSettings
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.profiler import background, step_times
from runtime.profiler.background import Left, Turns, check_node, measure_node, rest_s
from runtime.profiler.node_sweep import sweep_shapes
from runtime.profiler.rehearsal import Beside
from runtime.profiler.step_times import StepRuns
from runtime.protocol.instance_orders import ObservedInstance
from runtime.protocol.profiling import MeasuredPoint, ProfileOrder, ProfilingPhase
from runtime.protocol.stage_pipe import (
    AGAIN,
    GO,
    Asking,
    CannotMeasure,
    Measured,
    ProfilingLaunch,
    parse_profiling_event,
)

SETTINGS = StageSettings(
    name="n",
    bind="tcp://127.0.0.1:1",
    secret_key_file="",
    public_key="k" * 40,
    memory_budget_bytes=50_000_000,
    relative_speed=0.5,
    threads=1,
)


def order(checkpoint: str = "tiny", number: int = 7) -> ProfileOrder:
    return ProfileOrder(
        id=number,
        checkpoint=checkpoint,
        mean_prompt_tokens=32,
        mean_output_tokens=16,
        max_context_tokens=128,
    )


@pytest.fixture(autouse=True)
def _children_import_what_we_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))


def heard(at_s: float, steps: int = 3, *, is_busy: bool = False) -> Traffic:
    return Traffic(heard_s=at_s, steps=steps, is_busy=is_busy)


@pytest.mark.parametrize(
    ("before", "now", "may"),
    [
        pytest.param(None, None, True, id="nothing is served"),
        pytest.param(heard(1), None, True, id="the stage has gone"),
        pytest.param(heard(1), heard(11), True, id="no step since"),
        pytest.param(None, heard(11), True, id="it has only begun to serve"),
        pytest.param(heard(1), heard(11, 4), False, id="a step since"),
        pytest.param(heard(1), heard(11, is_busy=True), False, id="a request waits between steps"),
        pytest.param(heard(1), heard(9), False, id="not heard of since the question"),
    ],
)
def test_a_step_is_timed_only_when_the_stage_says_that_it_has_nothing_to_do(
    before: Traffic | None, now: Traffic | None, may: bool
) -> None:
    assert leave_to_measure(before, now, asked_s=10) is may


def test_a_node_without_a_stage_serves_nothing() -> None:
    assert stage_traffic(LocalState(), now_s=1) is None


@pytest.mark.parametrize(
    ("instances", "is_busy"),
    [
        pytest.param([], None, id="none"),
        pytest.param([("idle", None)], None, id="none that runs"),
        pytest.param([("ready", 0)], False, id="one without requests"),
        pytest.param([("ready", 0), ("ready", 2)], True, id="one has requests"),
        pytest.param([("starting", None)], True, id="one loads"),
        pytest.param([("ready", None)], False, id="an engine that does not say"),
    ],
)
def test_a_node_is_not_measured_while_an_instance_on_it_is_at_work(
    instances: list[tuple[str, int | None]], is_busy: bool | None
) -> None:
    observed = [
        ObservedInstance(name=f"i{number}", condition=condition, requests=requests)
        for number, (condition, requests) in enumerate(instances)
    ]
    traffic = node_traffic(LocalState(), observed, now_s=5.0)
    assert (None if traffic is None else traffic.is_busy) == is_busy
    assert leave_to_measure(traffic, traffic, asked_s=4.0) == (not is_busy)


class Watched:
    """A `Profiling` over `fake_profiler`, with traffic as the test says."""

    def __init__(self, directory: Path, *, emulated: bool = False) -> None:
        self.record = directory / "answers"
        self.traffic: Callable[[], Traffic | None] = lambda: None
        self.changed = asyncio.Event()
        self.phases: list[ProfilingPhase] = []
        command = (sys.executable, fake_profiler.__file__, str(self.record))
        self.profiling = Profiling(
            settings=SETTINGS.model_copy(update={"profile_command": command}),
            host="127.0.0.1",
            emulated=emulated,
            traffic=lambda: self.traffic(),
            on_change=self._remember,
        )

    def _remember(self) -> None:
        assert self.profiling.progress is not None
        self.phases.append(self.profiling.progress.phase)
        self.changed.set()

    @property
    def answers(self) -> list[bytes]:
        return self.record.read_bytes().splitlines(keepends=True)

    async def until(self, phase: ProfilingPhase) -> None:
        while self.profiling.progress is None or self.profiling.progress.phase is not phase:
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), PATIENCE_S)


def run(work: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 2 * PATIENCE_S))


@pytest.mark.processes
def test_an_order_is_measured_once_and_its_result_stays_until_it_is_taken(tmp_path: Path) -> None:
    async def life() -> None:
        measured = Watched(tmp_path)
        measured.profiling.want(order())
        await measured.until(ProfilingPhase.DONE)
        measured.profiling.want(order())
        progress = measured.profiling.progress
        assert progress is not None
        assert progress.measurement is not None
        assert progress.measurement.layer_times == fake_profiler.MEASUREMENT.layer_times
        assert progress.measurement.seconds > 0
        assert measured.answers == [GO, GO]
        measured.profiling.want(None)
        assert measured.profiling.progress is None
        await measured.profiling.stop()

    run(life())


@pytest.mark.processes
def test_measuring_waits_for_traffic_to_pause_and_does_the_disturbed_step_again(
    tmp_path: Path,
) -> None:
    async def life() -> None:
        measured = Watched(tmp_path)
        seconds, steps = itertools.count(1e12), itertools.count()
        measured.traffic = lambda: heard(next(seconds), next(steps), is_busy=True)
        measured.profiling.want(order())
        await measured.until(ProfilingPhase.WAITING)
        assert measured.profiling.progress is not None
        assert "serves" in measured.profiling.progress.message
        measured.traffic = lambda: heard(next(seconds), 1000)
        await measured.until(ProfilingPhase.DONE)
        assert measured.answers == [AGAIN, GO]
        await measured.profiling.stop()

    run(life())


@pytest.mark.processes
@pytest.mark.parametrize(
    ("behaviour", "told"),
    [
        ("crashes", "status 3"),
        ("refuses", "checkpoint x is not there; copy it"),
        ("babbles", "the measurement broke off: ValueError"),
    ],
)
def test_a_measurement_that_fails_says_why(tmp_path: Path, behaviour: str, told: str) -> None:
    async def life() -> None:
        measured = Watched(tmp_path)
        measured.profiling.want(order(behaviour))
        await measured.until(ProfilingPhase.FAILED)
        assert measured.profiling.progress is not None
        assert told in measured.profiling.progress.message
        await measured.profiling.stop()

    run(life())


def test_an_emulated_node_has_nothing_to_measure(tmp_path: Path) -> None:
    async def life() -> None:
        measured = Watched(tmp_path, emulated=True)
        measured.profiling.want(order())
        await measured.until(ProfilingPhase.FAILED)
        await measured.profiling.stop()
        assert not measured.record.exists()

    run(life())


@pytest.mark.processes
def test_an_order_that_is_withdrawn_ends_the_process(tmp_path: Path) -> None:
    async def life() -> None:
        measured = Watched(tmp_path)
        seconds = itertools.count(1e12)
        measured.traffic = lambda: heard(next(seconds), is_busy=True)
        measured.profiling.want(order())
        await measured.until(ProfilingPhase.WAITING)
        measured.profiling.want(None)
        await measured.profiling.stop()
        assert measured.profiling.progress is None
        assert not measured.record.exists()

    run(life())


def rehearsed(*_: object, **__: object) -> Beside:
    return Beside(head_s=0.1, handling_s=0.02, hop_s=0.003)


def _launch(checkpoint: Path, check: tuple[MeasuredPoint, ...] = ()) -> ProfilingLaunch:
    wanted = order(str(checkpoint)).model_copy(update={"check": check})
    return ProfilingLaunch(order=wanted, memory_budget_bytes=50_000_000, relative_speed=0.5)


def test_a_checkpoint_is_measured_by_tokens_context_and_layers(tmp_path: Path) -> None:
    make_tiny_checkpoint(tmp_path, sizes=TinySizes(num_layers=2), seed=1)
    ticks, draw = itertools.count(), random.Random(1)
    rests: list[float] = []
    asked = io.BytesIO()
    turns = Turns(answers=io.BytesIO(GO * 3 + AGAIN + GO * 100), events=asked)
    found = measure_node(
        _launch(tmp_path),
        turns,
        clock=lambda: next(ticks) * 0.25 * draw.uniform(1, 1 + 1e-9),
        sleep=rests.append,
        rehearse=rehearsed,
    )
    assert len(rests) >= sum(point.runs for point in found.points)
    assert found.max_layers == 2
    assert found.repeated == 1
    assert {point.layers for point in found.points} == {1, 5}
    decodes = [point for point in found.points if point.phase == "decode"]
    assert len({point.tokens for point in decodes}) == 3
    assert len(asked.getvalue().splitlines()) == len(found.points) + 3
    check = (found.points[0], found.points[-1])
    checked = check_node(
        _launch(tmp_path, check=check),
        Turns(answers=io.BytesIO(GO * 100), events=io.BytesIO()),
        clock=lambda: next(ticks) * 0.25,
        sleep=rests.append,
    )
    shapes = [(one.phase, one.layers, one.batch, one.tokens) for one in checked]
    assert shapes == [(one.phase, one.layers, one.batch, one.tokens) for one in check]
    assert [one.median_s for one in checked] == pytest.approx([one.median_s for one in check])
    # A step of 5 layers takes 0.25 s as one of 1 does, on a node of half the speed 0.5 s.
    assert found.decode_fit.layers == 5
    constant = found.decode_fit.parameters[3]
    assert constant == pytest.approx(0.5, rel=0.01)
    times = found.layer_times
    assert 2 * times.decode_s(4) + times.decode_step_s == pytest.approx(0.5, rel=0.05)
    # A slower node draws its tokens more slowly, but its loop and its network are as fast as any.
    assert (times.head_s, times.handling_s, times.hop_s) == (0.2, 0.02, 0.003)


def test_a_slower_node_rests_longer_as_it_does_nothing_meanwhile() -> None:
    assert rest_s(0.0, relative_speed=0.1) == pytest.approx(0.01)
    assert rest_s(0.001, relative_speed=1.0) == pytest.approx(0.01)
    assert rest_s(0.001, relative_speed=0.1) == pytest.approx(0.019)
    assert rest_s(1.0, relative_speed=0.1) == pytest.approx(0.05)


def test_nothing_is_asked_for_twice_once_nobody_answers() -> None:
    turns = Turns(answers=io.BytesIO(GO), events=io.BytesIO())
    with pytest.raises(Left):
        turns.take(0.0, lambda: StepRuns(least_s=1, median_s=1, runs=1))


def test_the_sweep_stays_within_the_longest_context() -> None:
    shapes = sweep_shapes(context_tokens=100, longest_tokens=300, decodes=256)
    assert max(shape.tokens for shape in shapes) < 300
    assert {shape.layers for shape in shapes} == {1, 5}
    assert len(set(shapes)) == len(shapes)


@pytest.mark.parametrize("longest_tokens", [3, 17, 64, 65])
def test_of_a_short_context_enough_is_measured_for_a_fit(longest_tokens: int) -> None:
    shapes = sweep_shapes(context_tokens=2, longest_tokens=longest_tokens, decodes=16)
    assert max(shape.tokens for shape in shapes) < longest_tokens
    assert len(set(shapes)) == len(shapes)
    deep = [shape for shape in shapes if shape.layers == 5]
    for phase in ("decode", "prompt"):
        steps = [
            Timing(batch=shape.batch, tokens=shape.tokens, seconds=1.0)
            for shape in deep
            if shape.phase == phase
        ]
        assert fit_latency_model(steps, steps, extended=True).decode.points == len(steps)


@pytest.mark.processes
def test_a_check_ends_with_the_steps_that_it_timed(tmp_path: Path) -> None:
    async def life() -> None:
        measured = Watched(tmp_path)
        check = fake_profiler.MEASUREMENT.points
        measured.profiling.want(order().model_copy(update={"check": check}))
        await measured.until(ProfilingPhase.DONE)
        assert measured.profiling.progress is not None
        assert measured.profiling.progress.checked == check
        assert measured.profiling.progress.measurement is None
        await measured.profiling.stop()

    run(life())


def test_events_of_the_pipe_are_told_apart() -> None:
    line = b'{"event":"cannot_measure","message":"no room"}'
    assert parse_profiling_event(line).event == "cannot_measure"


class Pipes:
    """Stdin with answers, stdout that is kept; the process that tests stays as nice as it is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
        self.out = io.BytesIO()
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(said)))
        monkeypatch.setattr("sys.stdout", SimpleNamespace(buffer=self.out))
        monkeypatch.setattr(os, "nice", lambda _by: 0)

    @property
    def last(self) -> Asking | Measured | CannotMeasure:
        return parse_profiling_event(self.out.getvalue().splitlines()[-1])


@pytest.mark.processes
def test_the_process_answers_with_what_it_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tiny_checkpoint(tmp_path, sizes=TinySizes(num_layers=2), seed=1)
    monkeypatch.setattr(step_times, "_ENOUGH_S", 0.0)
    monkeypatch.setattr(background, "REST_S", 0.0)
    pipes = Pipes(monkeypatch, _launch(tmp_path).to_line() + GO * 100)
    assert background.main([]) == 0
    assert isinstance(pipes.last, Measured)
    assert pipes.last.measurement.max_layers == 2


@pytest.mark.processes
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, "config.json"),
        ({"memory_budget_bytes": 1000}, "hold no layer"),
    ],
)
def test_the_process_says_in_one_line_why_it_cannot_measure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, int], told: str
) -> None:
    if change:
        make_tiny_checkpoint(tmp_path, sizes=TinySizes(num_layers=2), seed=1)
        monkeypatch.setattr(step_times, "_ENOUGH_S", 0.0)
    launch = _launch(tmp_path).model_copy(update=change)
    pipes = Pipes(monkeypatch, launch.to_line() + GO * 100)
    assert background.main([]) == 1
    assert isinstance(pipes.last, CannotMeasure)
    assert told in pipes.last.message


@pytest.mark.processes
def test_the_memory_that_a_refusal_names_suffices_and_a_byte_less_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tiny_checkpoint(tmp_path, sizes=TinySizes(num_layers=3), seed=1)
    monkeypatch.setattr(step_times, "_ENOUGH_S", 0.0)
    monkeypatch.setattr(background, "REST_S", 0.0)

    def told(budget: int) -> Asking | Measured | CannotMeasure:
        launch = _launch(tmp_path).model_copy(update={"memory_budget_bytes": budget})
        pipes = Pipes(monkeypatch, launch.to_line() + GO * 100)
        background.main([])
        return pipes.last

    refused = told(1000)
    assert isinstance(refused, CannotMeasure)
    needed = int(refused.message.split(" need ")[1].split(" bytes")[0])
    enough = told(needed)
    assert isinstance(enough, Measured)
    assert enough.measurement.max_layers == 1
    assert isinstance(told(needed - 1), CannotMeasure)


def test_the_process_also_tells_of_what_nobody_foresaw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access\nsee the manual")

    monkeypatch.setattr(background, "measure_node", fail)
    pipes = Pipes(monkeypatch, _launch(tmp_path).to_line())
    assert background.main([]) == 1
    assert isinstance(pipes.last, CannotMeasure)
    assert pipes.last.message == "RuntimeError: CUDA error: an illegal memory access"


def test_the_process_ends_when_nobody_wants_to_know_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tiny_checkpoint(tmp_path, sizes=TinySizes(num_layers=2), seed=1)
    pipes = Pipes(monkeypatch, _launch(tmp_path).to_line() + GO)
    assert background.main([]) == 1
    assert isinstance(pipes.last, Asking)


def test_what_counts_of_a_step_is_the_median_of_its_runs(tmp_path: Path) -> None:
    """Every fourth run is right after another's caches, as it were, and takes no time."""
    make_tiny_checkpoint(tmp_path, sizes=TinySizes(num_layers=2), seed=1)
    moments = itertools.accumulate(0.25 if tick % 8 else 0.001 for tick in itertools.count(1))
    turns = Turns(answers=io.BytesIO(GO * 100), events=io.BytesIO())
    chosen = KvMinimum(requests=2, tokens=256)
    asked = order(str(tmp_path)).model_copy(update={"kv_minimum": chosen})
    found = measure_node(
        _launch(tmp_path).model_copy(update={"order": asked}),
        turns,
        clock=lambda: next(moments),
        sleep=lambda _: None,
        rehearse=rehearsed,
    )
    assert min(point.seconds for point in found.points) < 0.01
    assert found.decode_fit.parameters[3] == pytest.approx(0.5, rel=0.01)
    assert found.memory is not None
    assert found.memory.kv_minimum == chosen
