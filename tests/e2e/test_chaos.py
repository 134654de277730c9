"""Stages die, freeze and are cut off under load: no stream is lost, and none differs by a token.

Real processes, seeded. `-m chaos` runs all scenarios and prints a report.
"""

import asyncio
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import httpx
import pytest

from planner.domain.cluster import COORDINATOR
from runtime.models.compiled.library import compiled_kernels
from tests.e2e.chaos_cluster import ChaosCluster, running_cluster
from tests.e2e.chaos_load import Load, Stream, make_load
from tests.e2e.cut_cable import Way
from tests.waiting import until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.chaos,
    pytest.mark.skipif(
        compiled_kernels() is None,
        reason="the package was built without a C compiler: products depend on what runs beside",
    ),
]

HUB = "hub"
CLIENTS = 6
_CALM_S = 1.0  # before the fault, so that streams run through every node
_HEALS_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A fault, where, and for how long; a killed stage is back when it has loaded."""

    name: str
    strike: Callable[[ChaosCluster], None]
    seed: int
    kind: str
    has_way: bool  # whether requests can go around what is struck
    heal: Callable[[ChaosCluster], None] = field(default=lambda cluster: None)
    lasts_s: float = 0.0
    ends: str | None = None  # the node whose process makes place for another


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    scenario: Scenario
    streams: tuple[Stream, ...]
    noticed_s: float | None  # after the strike; None: not at all
    gap_s: float  # the longest wait for a token of those that ran when it struck
    # The same minus an undisturbed prefill of that length; None: prefills were not measured.
    beyond_s: float | None
    healed_in_s: float

    def line(self) -> str:
        noticed = "      -" if self.noticed_s is None else f"{self.noticed_s:5.2f} s"
        beyond = "" if self.beyond_s is None else f" ({self.beyond_s:5.2f} s beyond a prefill)"
        return (
            f"{self.scenario.name:46} {len(self.streams):3} streams, noticed after {noticed}, "
            f"longest gap {self.gap_s:5.2f} s{beyond}, "
            f"all back after {self.healed_in_s:5.1f} s"
        )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosCluster]:
    with running_cluster(tmp_path_factory.mktemp("chaos")) as running:
        yield running


@pytest.fixture(scope="module")
def load(cluster: ChaosCluster) -> Load:
    load = make_load(cluster.url, seed=11)
    asyncio.run(load.learn_answers())
    assert len(load.prompts) >= 6
    return load


def killed(node: str, seed: int = 1) -> Scenario:
    return ended(node, "killed", ChaosCluster.kill, seed=seed)


def told_to_end(node: str, seed: int = 1) -> Scenario:
    return ended(node, "told to end", ChaosCluster.tell_to_end, seed=seed)


def ended(
    node: str, kind: str, strike: Callable[[ChaosCluster, str], None], *, seed: int
) -> Scenario:
    return Scenario(
        name=f"{node} {kind}",
        strike=lambda cluster: strike(cluster, node),
        seed=seed,
        kind=kind,
        has_way=node != HUB,
        ends=node,
    )


def frozen(node: str, *, lasts_s: float, seed: int = 1) -> Scenario:
    return Scenario(
        name=f"{node} frozen for {lasts_s:g} s",
        strike=lambda cluster: cluster.freeze(node),
        heal=lambda cluster: cluster.thaw(node),
        lasts_s=lasts_s,
        seed=seed,
        kind=f"frozen for {lasts_s:g} s",
        has_way=node != HUB,
    )


def cut(
    one: str, other: str, *, lasts_s: float, lost_to: str | None = None, seed: int = 1
) -> Scenario:
    """Nothing passes between the two; with `lost_to` only what is sent to it is lost."""

    def strike(cluster: ChaosCluster) -> None:
        for dialler, listener in ((one, other), (other, one)):
            ways = {Way.THERE, Way.BACK}
            if lost_to is not None:
                ways = {Way.THERE if listener == lost_to else Way.BACK}
            cluster.cabling.cut(dialler, listener, frozenset(ways))

    words = f"to {lost_to}" if lost_to else "both ways"
    return Scenario(
        name=f"{one} - {other} cut {words} for {lasts_s:g} s",
        strike=strike,
        heal=lambda cluster: cluster.cabling.mend_all(),
        lasts_s=lasts_s,
        seed=seed,
        kind=f"cut {'one way' if lost_to else 'both ways'} for {lasts_s:g} s",
        has_way=(one, other) != (COORDINATOR, HUB),
    )


def run(cluster: ChaosCluster, load: Load, scenario: Scenario) -> Outcome:
    """Strike under load, heal, wait until all nodes are up again; then nothing may be left."""
    return asyncio.run(_run(cluster, load, scenario))


async def _run(cluster: ChaosCluster, load: Load, scenario: Scenario) -> Outcome:
    over = asyncio.Event()
    pressing = asyncio.create_task(load.press(clients=CLIENTS, until=over, seed=scenario.seed))
    await asyncio.sleep(_CALM_S + random.Random(scenario.seed).random())
    struck_s, struck_unix_s = time.monotonic(), time.time()
    starts = cluster.starts()
    scenario.strike(cluster)
    try:
        await asyncio.sleep(scenario.lasts_s)
    finally:
        scenario.heal(cluster)
    healed_s = time.monotonic()
    ends = scenario.ends
    if ends is not None:  # which takes its time while requests need it
        await _until(lambda: cluster.starts()[ends] > starts[ends], "its process is another")
    await asyncio.sleep(_CALM_S)
    await _until(lambda: not cluster.health()["silent_nodes"], "all stages are up again")
    back_s = time.monotonic() - healed_s
    over.set()
    streams = await pressing
    await _until(lambda: not cluster.pages_held(), "all pages are given back")
    affected = [stream for stream in streams if stream.ran_at(struck_s)]
    return Outcome(
        scenario=scenario,
        streams=tuple(streams),
        noticed_s=min(
            (at - struck_unix_s for at, _ in cluster.losses() if at >= struck_unix_s),
            default=None,
        ),
        gap_s=max((stream.longest_gap()[0] for stream in affected), default=0.0),
        beyond_s=max((load.gap_beyond_prefill_s(stream) for stream in affected), default=0.0)
        if load.prefills_s
        else None,
        healed_in_s=back_s,
    )


async def _until(condition: Callable[[], bool], what: str) -> None:
    """In a thread, since the load runs in the loop."""
    await asyncio.to_thread(until, condition, what, within_s=_HEALS_WITHIN_S)


def check(load: Load, outcome: Outcome) -> None:
    assert len(outcome.streams) >= CLIENTS
    wrong = [stream for stream in outcome.streams if not load.is_right(stream)]
    assert not wrong, f"{outcome.line()}: {wrong[0]}"


def test_requests_leave_a_stage_before_it_ends(cluster: ChaosCluster, load: Load) -> None:
    outcome = run(cluster, load, told_to_end("last-1"))
    print(outcome.line())
    check(load, outcome)
    log = cluster.coordinator_log()
    assert "the stage of 'last-1' is about to end" in log
    assert "the stage of 'last-1' is lost" not in log, "requests were still there"


def test_a_coordinator_ends_its_streams_before_itself(cluster: ChaosCluster, load: Load) -> None:
    streams, refused = asyncio.run(_end_coordinator_under_load(cluster, load))
    assert len(streams) == CLIENTS
    assert all(load.is_right(stream) for stream in streams)
    for answer in refused:
        assert answer.status_code == httpx.codes.SERVICE_UNAVAILABLE
        assert answer.json()["status"] == "stopping"
    cluster.start_coordinator()


async def _end_coordinator_under_load(
    cluster: ChaosCluster, load: Load
) -> tuple[list[Stream], list[httpx.Response]]:
    """What the streams got that ran when it was told, and what but well /health said then; nothing
    if it had ended before it was asked again."""
    over = asyncio.Event()
    pressing = asyncio.create_task(load.press(clients=CLIENTS, until=over, seed=1))
    await _until(lambda: cluster.health()["requests_running"] == CLIENTS, "all streams run")
    over.set()
    process = cluster.tell_coordinator_to_end()
    refused: list[httpx.Response] = []

    def is_refused() -> bool:
        try:
            answer = httpx.get(f"{cluster.url}/health", timeout=10)
        except httpx.TransportError:
            return process.poll() is not None
        if answer.status_code != httpx.codes.OK:
            refused.append(answer)
        return bool(refused)

    await _until(is_refused, "it says that it stops, or has ended")
    streams = await pressing
    assert await asyncio.to_thread(process.wait, _HEALS_WITHIN_S) == 0
    return streams, refused


def _all_scenarios() -> list[Scenario]:
    """At least fifty; seeds move the moment of the strike."""
    scenarios: list[Scenario] = []
    for seed, node in enumerate(["first-1", HUB, "last-1", "last-2"] * 3):
        scenarios.append(killed(node, seed=seed))
    for seed, node in enumerate(["first-1", HUB, "last-1", "last-2"]):
        scenarios.append(told_to_end(node, seed=seed))
    for seed, node in enumerate(["first-1", HUB, "last-2", "first-2"] * 3):
        scenarios.append(frozen(node, lasts_s=(0.7, 3.0, 8.0)[seed % 3], seed=seed))
    for seed, node in enumerate(["first-1", HUB, "last-1"] * 3):
        lost_to = (None, COORDINATOR, node)[seed // 3]
        scenarios.append(cut(COORDINATOR, node, lasts_s=5.0, lost_to=lost_to, seed=seed))
    for seed, (one, other) in enumerate([("first-1", HUB), (HUB, "last-1")] * 9):
        lost_to = (None, one, other)[seed // 2 % 3]
        lasts_s = (0.7, 3.0, 8.0)[seed // 6]
        scenarios.append(cut(one, other, lasts_s=lasts_s, lost_to=lost_to, seed=seed))
    return scenarios


def test_fifty_faults_lose_nothing(cluster: ChaosCluster, load: Load) -> None:
    asyncio.run(load.learn_prefills())  # for the report alone
    outcomes = []
    for scenario in _all_scenarios():
        outcome = run(cluster, load, scenario)
        print(outcome.line(), flush=True)
        check(load, outcome)
        outcomes.append(outcome)
    assert len(outcomes) >= 50
    streams = sum(len(outcome.streams) for outcome in outcomes)
    print(f"{len(outcomes)} faults, {streams} streams, none lost")
    kinds = {outcome.scenario.kind: None for outcome in outcomes}
    for kind in kinds:
        of_kind = [outcome for outcome in outcomes if outcome.scenario.kind == kind]
        noticed = [outcome.noticed_s for outcome in of_kind if outcome.noticed_s is not None]
        print(f"{kind}: {len(of_kind)} faults, {len(noticed)} noticed,", spread(noticed))
    for has_way, words in ((True, "with a way around"), (False, "without")):
        faults = [outcome for outcome in outcomes if outcome.scenario.has_way is has_way]
        print(f"longest gap of each of {len(faults)} faults {words}:")
        print("    in all:", spread([outcome.gap_s for outcome in faults]))
        beyond = [outcome.beyond_s for outcome in faults if outcome.beyond_s is not None]
        print("    beyond a prefill:", spread(beyond))


def spread(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    if not ordered:
        return "none"
    p95 = ordered[math.ceil(0.95 * len(ordered)) - 1]
    return f"median {statistics.median(ordered):.2f} s, p95 {p95:.2f} s, worst {ordered[-1]:.2f} s"
