"""Finding out how many steps the cores can run at once, against machines whose cores are known."""

import math
import os
import sys
import threading
import time

import pytest
from published_options import PUBLISHED

from runtime.engine.core_use import CoreUse, core_reader, delay_reader
from runtime.engine.decode_cap import DecodeCap
from runtime.engine.link_cuts import LinkCuts
from runtime.engine.prompt_steps import PromptSteps
from runtime.engine.running_requests import RunningRequests
from runtime.engine.sequence import Chunk, Work, passing
from runtime.engine.shared_cores import WINDOW_S, SharedCores, may_share_cores
from runtime.engine.step_pace import StepPace
from runtime.protocol.control import PeerAddress
from runtime.protocol.engine_options import EngineOptions, SharedCoresRule
from tests.programs import started

MOST = 6.0
KEY = "k" * 40


class Machine:
    """`cores` cores, on which as many micro-batches compute all the time as there are; `others`
    are programs that always want a core too."""

    def __init__(self, *, cores: float, others: int = 0, threads: int = 1) -> None:
        self._cores = cores
        self._others = others
        self._threads = threads
        self.now_s = self._ran_s = self._delayed_s = self._idle_s = 0.0
        self.reads = 0

    def compute(self, micro_batches: float, seconds: float) -> None:
        wanted = micro_batches * self._threads + self._others
        share = min(1.0, self._cores / wanted)
        self.now_s += seconds
        self._ran_s += seconds * share
        self._delayed_s += seconds * (1 - share)
        self._idle_s += seconds * max(0.0, self._cores - wanted)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self._idle_s += seconds * self._cores

    def read(self) -> CoreUse:
        self.reads += 1
        return CoreUse(
            at_s=self.now_s, ran_s=self._ran_s, delayed_s=self._delayed_s, idle_s=self._idle_s
        )


def after(machine: Machine, *, micro_batches: float, windows: int, threads: int = 1) -> list[float]:
    """The bounds of `windows` windows in which all micro-batches that it allows are under way."""
    shared = SharedCores(machine.read, threads=threads, most=MOST)
    bounds = []
    shared.look(now_s=machine.now_s, micro_batches=micro_batches)
    for _ in range(windows):
        machine.compute(min(micro_batches, shared.steps_at_once), WINDOW_S)
        shared.look(now_s=machine.now_s, micro_batches=micro_batches)
        bounds.append(shared.steps_at_once)
    return bounds


def test_where_every_micro_batch_has_a_core_nothing_is_bounded() -> None:
    assert set(after(Machine(cores=3), micro_batches=3, windows=20)) == {MOST}
    assert set(after(Machine(cores=16), micro_batches=3, windows=20)) == {MOST}


@pytest.mark.parametrize("cores", [1, 2])
def test_where_cores_are_short_as_many_steps_at_once_remain_as_there_are_cores(cores: int) -> None:
    bounds = after(Machine(cores=cores), micro_batches=4, windows=40)
    assert all(bound == pytest.approx(cores, abs=0.5) for bound in bounds[3:]), bounds


def test_steps_of_several_threads_need_as_many_cores() -> None:
    bounds = after(Machine(cores=4, threads=2), micro_batches=4, windows=40, threads=2)
    assert all(bound == pytest.approx(2, abs=0.5) for bound in bounds[3:]), bounds


def test_a_bound_of_one_stays_although_nothing_waits_for_a_core_any_more() -> None:
    """One batch at a time never waits; that no core is idle tells that there is one only."""
    bounds = after(Machine(cores=1), micro_batches=3, windows=40)
    assert bounds[1:] == [1.0] * 39


def test_cores_that_others_give_back_are_used_again() -> None:
    machine = Machine(cores=3, others=9)
    shared = SharedCores(machine.read, threads=1, most=MOST)
    for _ in range(10):
        shared.look(now_s=machine.now_s, micro_batches=3)
        machine.compute(min(3, shared.steps_at_once), WINDOW_S)
    assert shared.bound == pytest.approx(1.0)
    machine._others = 0
    for _ in range(5):
        machine.compute(min(3, shared.steps_at_once), WINDOW_S)
        shared.look(now_s=machine.now_s, micro_batches=3)
    assert shared.steps_at_once >= 3 - 0.5


def test_a_pause_between_requests_is_no_sign_of_idle_cores() -> None:
    machine = Machine(cores=1)
    shared = SharedCores(machine.read, threads=1, most=MOST)
    shared.look(now_s=machine.now_s, micro_batches=3)
    machine.compute(3, WINDOW_S)
    shared.look(now_s=machine.now_s, micro_batches=3)
    assert shared.bound == pytest.approx(1.0)
    shared.pause()
    machine.sleep(60)
    shared.look(now_s=machine.now_s, micro_batches=3)
    assert shared.bound == pytest.approx(1.0)


def test_the_counters_are_read_once_a_window() -> None:
    machine = Machine(cores=1)
    shared = SharedCores(machine.read, threads=1, most=MOST)
    for _ in range(1000):
        machine.compute(1, WINDOW_S / 100)
        shared.look(now_s=machine.now_s, micro_batches=3)
    assert machine.reads <= 11


def test_the_decode_cap_has_no_more_micro_batches_than_can_run_at_once() -> None:
    for steps_at_once, micro_batches in ((math.inf, 4.0), (6.0, 4.0), (1.0, 1.0)):
        cap = DecodeCap(
            EngineOptions(least_decode_cap=1), steps_at_once=lambda at_once=steps_at_once: at_once
        )
        cap.observe_step(0.125)
        cap.observe_return(0.4375)
        assert (cap.micro_batches, cap.is_short_of_cores) == (micro_batches, micro_batches < 4)
        assert cap.limit(resident=32) == 32 / micro_batches


def test_stages_that_share_cores_no_more_are_bound_by_them_no_more() -> None:
    machine = Machine(cores=1)
    pace = StepPace(
        EngineOptions(),
        running_requests=RunningRequests(),
        link_cuts=LinkCuts(
            PromptSteps(least=4, most=64), row_bytes=1, link_stats=dict, clock=lambda: 0.0
        ),
        shared_cores=SharedCores(machine.read, threads=1, most=MOST),
        most_decodes=64,
        clock=lambda: 0.0,
    )
    pace.decode_cap.observe_return(1.0)
    decode = Work(
        sequence=passing(0, 1),
        chunk=Chunk(position=1, n_tokens=1, payload=memoryview(b""), is_sampled=True, arrival=0),
    )
    for _ in range(3):
        machine.compute(MOST, WINDOW_S)
        pace.ran([decode], began_s=machine.now_s - 0.1, ended_s=machine.now_s)
    assert pace.decode_cap.is_short_of_cores
    pace.share_cores(None)
    assert not pace.decode_cap.is_short_of_cores
    assert pace.decode_cap.micro_batches == MOST


def peers(*hosts: str) -> list[PeerAddress]:
    addresses = [("coordinator", "10.0.0.9"), *((f"n{i}", host) for i, host in enumerate(hosts))]
    return [
        PeerAddress(name=name, endpoint=f"tcp://{host}:{5000 + port}", public_key=KEY)
        for port, (name, host) in enumerate(addresses)
    ]


def test_only_stages_at_one_address_that_measure_their_micro_batches_find_out() -> None:
    ours = EngineOptions()
    assert may_share_cores(peers("127.0.0.1", "127.0.0.1", "127.0.0.1"), ours)
    assert not may_share_cores(peers("10.0.0.1", "10.0.0.1", "10.0.0.2"), ours)
    assert not may_share_cores(peers("127.0.0.1"), ours)
    here = peers("127.0.0.1", "127.0.0.1")
    assert not may_share_cores(here, PUBLISHED)
    assert not may_share_cores(here, EngineOptions(shared_cores=SharedCoresRule.IGNORE))
    assert not may_share_cores(here, EngineOptions(micro_batches=2.0))
    assert not may_share_cores(here, EngineOptions(decode_cap=8))


READ = core_reader(clock=time.monotonic)


@pytest.mark.processes
@pytest.mark.skipif(READ is None, reason="the kernel tells nothing of who waits for cores")
def test_a_thread_that_shares_its_core_is_delayed_as_the_kernel_counts_it() -> None:
    """A rival on the same core, another process: what it waits for is no lock of Python's."""
    assert READ is not None
    found: list[float] = []

    def work() -> None:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # of this thread and its children
        with started([sys.executable, "-c", "while True: pass"]):
            before = after = READ()
            while after.ran_s - before.ran_s < 0.1 or after.delayed_s <= before.delayed_s:
                after = READ()
        found.append(after.delayed_s - before.delayed_s)
        assert after.idle_s >= before.idle_s
        delayed = delay_reader()
        assert delayed is not None
        assert delayed() >= after.delayed_s > 0

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found
    assert found[0] > 0
