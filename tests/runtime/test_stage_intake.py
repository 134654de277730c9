"""What becomes of requests over time: late rows, abandoned requests, slowed stages."""

import itertools
from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from in_memory_network import InMemoryNetwork

from runtime.engine.backend import ModelShape, Opened
from runtime.engine.grammar import Grammars
from runtime.engine.intake import MAX_TOMBSTONES, Intake
from runtime.engine.kv_cache import KvCache
from runtime.engine.limits import EngineLimits
from runtime.engine.model_backend import ModelBackend
from runtime.engine.model_runner import ModelRunner
from runtime.engine.pages import BlockTable, KvCacheManager
from runtime.engine.running_requests import RunningRequests
from runtime.engine.sequence import RequestKey, Sequence
from runtime.engine.stage import ORPHAN_AFTER_S, Stage
from runtime.engine.stage_process import StageProcess
from runtime.models.config import read_config
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.models.weights import load_decoder
from runtime.protocol.data import DType, Entry, Flag, Hop, Kind, Message, Reason, Route, Sampling
from runtime.protocol.engine_options import EngineOptions

GENERATION = 2
SHAPE = ModelShape(
    first=0,
    end=2,
    num_layers=2,
    hidden_size=4,
    vocab_size=300,
    dtype=DType.FLOAT32,
)


def prompt(request: int, *, max_tokens: int = 4) -> Message:
    ids = np.arange(10, 15, dtype="<i4")
    route = Route(
        hops=(Hop(node="a", first=0, end=2),),
        sampling=Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=max_tokens),
        prompt_tokens=len(ids),
    )
    entry = Entry(
        request=request,
        epoch=0,
        position=0,
        n_tokens=len(ids),
        hop=0,
        flags=Flag.PROMPT_END,
        route=route,
    )
    return Message(
        kind=Kind.PROMPT,
        generation=GENERATION,
        entries=(entry,),
        dtype=DType.INT32,
        payload=ids.tobytes(),
    )


def make_intake() -> tuple[Intake, list[Sequence]]:
    forgotten: list[Sequence] = []
    intake = Intake(
        "a",
        SHAPE,
        max_context_tokens=64,
        ranges={GENERATION: range(2)},
        running_requests=RunningRequests(),
        admit=admit_all,
        forget=forgotten.append,
        is_lost=lambda coordinator: False,
    )
    return intake, forgotten


def admit_all(sequence: Sequence, *, position: int, token_ids: memoryview | None) -> Reason:
    return Reason.NONE


def test_a_request_stays_in_its_generation_and_ends_with_it() -> None:
    forgotten: list[Sequence] = []
    ranges = {GENERATION: range(2), GENERATION + 1: range(2)}
    intake = Intake(
        "a",
        SHAPE,
        max_context_tokens=64,
        ranges=ranges,
        running_requests=RunningRequests(),
        admit=admit_all,
        forget=forgotten.append,
        is_lost=lambda coordinator: False,
    )
    later = replace(prompt(2), generation=GENERATION + 1)
    for message in (prompt(1), later):
        assert intake.accept(message, sender="coordinator", now_s=0.0) == []
    stray = replace(prompt(1), generation=GENERATION + 1)
    (refusal,) = intake.accept(stray, sender="coordinator", now_s=0.0)
    assert (refusal.reason, refusal.generation) == (Reason.STAGE_ERROR, GENERATION + 1)
    intake.accept(prompt(3), sender="coordinator", now_s=0.0)
    intake.end_generation(GENERATION, coordinator="coordinator")
    assert [sequence.key.request for sequence in forgotten] == [1, 3]
    assert [key.request for key in intake.running_requests.by_key] == [2]


def test_an_abandoned_request_is_forgotten_and_one_with_rows_to_run_is_not() -> None:
    intake, forgotten = make_intake()
    for request, now_s in [(1, 10.0), (2, 10.0), (3, 50.0)]:
        assert intake.accept(prompt(request), sender="coordinator", now_s=now_s) == []
    for request in (1, 3):
        key = RequestKey(request=request, epoch=0)
        intake.running_requests.take(intake.running_requests.by_key[key], 99)
    intake.end_orphans(silent_since_s=40.0)
    assert [sequence.key.request for sequence in forgotten] == [1]
    assert {key.request for key in intake.running_requests.by_key} == {2, 3}


def test_a_request_that_ended_stays_ended_while_it_is_remembered() -> None:
    intake, forgotten = make_intake()
    intake.accept(prompt(1), sender="coordinator", now_s=0.0)
    intake.end(RequestKey(request=1, epoch=0))
    intake.end(RequestKey(request=1, epoch=0))
    assert len(forgotten) == 1
    assert intake.accept(prompt(1), sender="coordinator", now_s=0.0) == []
    assert intake.running_requests.by_key == {}


def test_only_so_many_ended_requests_are_remembered() -> None:
    intake, _ = make_intake()
    for request in range(MAX_TOMBSTONES + 1):
        intake.end(RequestKey(request=request, epoch=0))
    intake.accept(prompt(0), sender="coordinator", now_s=0.0)
    intake.accept(prompt(1), sender="coordinator", now_s=0.0)
    assert [key.request for key in intake.running_requests.by_key] == [0]


@pytest.mark.parametrize("payload_bytes", [0, 16, 19])
def test_a_prompt_shorter_than_it_says_is_refused(payload_bytes: int) -> None:
    intake, _ = make_intake()
    whole = prompt(1)
    cut = Message(
        kind=whole.kind,
        generation=whole.generation,
        entries=whole.entries,
        dtype=whole.dtype,
        payload=bytes(whole.payload)[:payload_bytes],
    )
    refusals = intake.accept(cut, sender="coordinator", now_s=0.0)
    assert [refusal.reason for refusal in refusals] == [Reason.STAGE_ERROR]
    assert intake.running_requests.by_key == {}


def test_messages_a_stage_has_no_use_for_change_nothing() -> None:
    intake, _ = make_intake()
    nack = Message(kind=Kind.NACK, generation=GENERATION, entries=prompt(1).entries)
    assert intake.accept(nack, sender="coordinator", now_s=0.0) == []
    assert intake.running_requests.by_key == {}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("checkpoint")
    sizes = TinySizes(num_layers=2, hidden_size=16, intermediate_size=24, vocab_size=300)
    make_tiny_checkpoint(directory, sizes=sizes, seed=0)
    return directory


class ManualClock:
    """Each look costs a tenth of a second; sleeping costs what it says."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept_s: list[float] = []

    def look(self) -> float:
        self.now_s += 0.1
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now_s += seconds


def make_stage(
    checkpoint: Path,
    clock: ManualClock,
    network: InMemoryNetwork,
    speed: float,
    core_delay: Callable[[], float] | None = None,
) -> Stage:
    config = read_config(checkpoint)
    cpu = torch.device("cpu")
    decoder = load_decoder(
        checkpoint, config, first=0, end=2, device=cpu, progress=lambda _done, _total: None
    )
    return Stage(
        "a",
        Opened(
            backend=ModelBackend(
                ModelRunner(
                    decoder,
                    KvCache(config, pages=20, page_tokens=4, device=cpu),
                    max_context_tokens=64,
                ),
                grammars=Grammars(checkpoint, vocab_size=config.vocab_size),
            ),
            limits=EngineLimits(page_tokens=4, max_batch_tokens=512, max_context_tokens=64),
        ),
        network.join("a"),
        EngineOptions(),
        generation=GENERATION,
        process=StageProcess(
            relative_speed=speed, core_delay=core_delay, clock=clock.look, sleep=clock.sleep
        ),
    )


def run_for(stage: Stage, turns: int) -> None:
    counter = itertools.count()
    stage.run(lambda: next(counter) >= turns)


def test_a_stage_of_a_quarter_of_the_speed_takes_four_times_as_long(checkpoint: Path) -> None:
    clock, network = ManualClock(), InMemoryNetwork()
    coordinator = network.join("coordinator")
    stage = make_stage(checkpoint, clock, network, 0.25)
    coordinator.send("a", prompt(1))
    run_for(stage, 4)
    stats = stage.stats()
    assert stats.steps_total == 4
    assert clock.slept_s == pytest.approx([0.3] * 4)
    assert stats.busy_s_total >= 4 * 0.4
    assert stats.busy_s_total <= stats.uptime_s


def test_waiting_for_a_core_is_told_apart_and_does_not_slow_a_slow_stage_further(
    checkpoint: Path,
) -> None:
    clock, network = ManualClock(), InMemoryNetwork()
    coordinator, looks = network.join("coordinator"), itertools.count()
    stage = make_stage(checkpoint, clock, network, 0.25, lambda: 0.04 * next(looks))
    coordinator.send("a", prompt(1))
    run_for(stage, 4)
    stats = stage.stats()
    # Between two looks 0.04 s of waiting: one until the stage rests, one until the step has ended.
    assert clock.slept_s == pytest.approx([3 * (0.1 - 0.04)] * 4)
    assert stats.delayed_s_total == pytest.approx(4 * 0.08)


def test_nobody_claims_to_know_what_the_kernel_does_not_tell(checkpoint: Path) -> None:
    stage = make_stage(checkpoint, ManualClock(), InMemoryNetwork(), 1.0)
    assert stage.stats().delayed_s_total is None


def test_an_idle_stage_checks_its_pages_once_for_what_came(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: list[KvCacheManager] = []
    check = KvCacheManager.check

    def counted(kv_manager: KvCacheManager, tables: Items[BlockTable]) -> None:
        checks.append(kv_manager)
        check(kv_manager, tables)

    monkeypatch.setattr(KvCacheManager, "check", counted)
    clock, network = ManualClock(), InMemoryNetwork()
    coordinator = network.join("coordinator")
    stage = make_stage(checkpoint, clock, network, 1.0)
    for request in (1, 2):
        coordinator.send("a", prompt(request))
        run_for(stage, 6)
        for _ in range(5):
            clock.now_s += 2
            run_for(stage, 1)
        assert len(checks) == request


def test_a_stage_frees_the_pages_of_a_coordinator_that_died(checkpoint: Path) -> None:
    clock, network = ManualClock(), InMemoryNetwork()
    coordinator = network.join("coordinator")
    stage = make_stage(checkpoint, clock, network, 1.0)
    coordinator.send("a", prompt(1))
    run_for(stage, 6)
    assert stage.stats().kv_pages_used > 0
    clock.now_s += ORPHAN_AFTER_S
    run_for(stage, 2)
    stage.check_pages()
    assert stage.stats().kv_pages_used == 0
