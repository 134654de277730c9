"""Drives a cluster with requests and measures what their clients see."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from benchmarks.emulated.virtual_cluster import VirtualCluster
from planner.workload.request import Lengths, Request
from runtime.coordinator.live_request import LiveRequest
from runtime.protocol.data import Kind
from runtime.transport.base import Received


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """In seconds; nan where nothing was counted."""

    p50_s: float
    p95_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What was measured in the window, and its length."""

    output_tokens_per_s: float
    ttft: Percentiles
    itl: Percentiles
    tpot: Percentiles
    requests_finished: int
    requests_running: float
    requests_failed: int
    begun_anew: int
    window_s: float


class Load(Protocol):
    """What offers requests."""

    def begin(self, clients: "Clients") -> None: ...

    def token_came(self, clients: "Clients") -> None:
        """A first or last token, so perhaps room for more."""


class Saturated:
    """One more request whenever there is room and few prompts are under way, as the simulator's
    `Backlog`. TTFT counts from admission."""

    from_admission = True

    def __init__(self, lengths: Iterator[Lengths], *, prompts_in_flight: int) -> None:
        self._lengths = lengths
        self._prompts_in_flight = prompts_in_flight

    def begin(self, clients: "Clients") -> None:
        self.token_came(clients)

    def token_came(self, clients: "Clients") -> None:
        waiting = clients.cluster.dispatcher
        while clients.prompts < self._prompts_in_flight and not waiting.requests_waiting:
            clients.submit(next(self._lengths))


class Arriving:
    """Requests at given times. TTFT counts from arrival, waiting included."""

    from_admission = False

    def __init__(self, requests: Iterator[Request]) -> None:
        self._requests = requests

    def begin(self, clients: "Clients") -> None:
        self._foresee(clients)

    def token_came(self, clients: "Clients") -> None:
        """They come on their own."""

    def _foresee(self, clients: "Clients") -> None:
        request = next(self._requests)

        def arrive() -> None:
            clients.submit(request.lengths)
            self._foresee(clients)

        agenda = clients.cluster.agenda
        agenda.at(clients.began_s + request.arrival_s, arrive)


@dataclass(slots=True, kw_only=True)
class _Client:
    request: LiveRequest
    tokens: int = 0
    first_s: float = 0.0
    last_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class _Tally:
    ttft_s: list[float] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)
    tpot_s: list[float] = field(default_factory=list)
    tokens: int = 0
    begun_anew: int = 0
    running_s: float = 0.0  # integral


class Clients:
    """All clients of a cluster; `prompts` of them have no token yet."""

    def __init__(self, cluster: VirtualCluster, load: Saturated | Arriving) -> None:
        self.cluster = cluster
        self.prompts = 0
        self.began_s = 0.0
        self._load = load
        self._clients: dict[int, _Client] = {}
        self._tally = _Tally()
        self._counted_s = 0.0
        cluster.heard = self._hear

    def run(self, *, warm_up_s: float, window_s: float) -> Figures:
        """Figures of the window after the warm-up."""
        agenda = self.cluster.agenda
        agenda.run(until_s=_STAGES_REPORT_S)
        self.began_s = agenda.now_s
        self._load.begin(self)
        agenda.run(until_s=self.began_s + warm_up_s)
        self._count_running()
        self._tally = _Tally()
        failed = self.cluster.stats.requests_failed_total
        agenda.run(until_s=self.began_s + warm_up_s + window_s)
        self._count_running()
        tally = self._tally
        return Figures(
            output_tokens_per_s=tally.tokens / window_s,
            ttft=_percentiles(tally.ttft_s),
            itl=_percentiles(tally.gaps_s),
            tpot=_percentiles(tally.tpot_s),
            requests_finished=len(tally.tpot_s),
            requests_running=tally.running_s / window_s,
            requests_failed=self.cluster.stats.requests_failed_total - failed,
            begun_anew=tally.begun_anew,
            window_s=window_s,
        )

    def submit(self, lengths: Lengths) -> None:
        self._count_running()
        request = self.cluster.submit(
            prompt_tokens=lengths.prompt_tokens, output_tokens=lengths.output_tokens
        )
        self._clients[request.id] = _Client(request=request)
        self.prompts += 1

    def _hear(self, received: Received) -> None:
        message = received.message
        concerned = [
            client
            for entry in message.entries
            if (client := self._clients.get(entry.request)) is not None
        ]
        epochs = sum(client.request.epoch for client in concerned)
        self.cluster.dispatcher.receive(received)
        if message.kind == Kind.NACK:
            self._tally.begun_anew += sum(client.request.epoch for client in concerned) - epochs
        for client in concerned:
            self._take(client)

    def _take(self, client: _Client) -> None:
        now_s, request = self.cluster.agenda.now_s, client.request
        came = len(request.token_ids) - client.tokens
        if came:
            self._tally.tokens += came
            if client.tokens:
                self._tally.gaps_s.append(now_s - client.last_s)
            else:
                client.first_s = now_s
                queue_s = request.queue_s if self._load.from_admission else 0.0
                self._tally.ttft_s.append(now_s - request.arrived_at - queue_s)
                self.prompts -= 1
            client.tokens += came
            client.last_s = now_s
        if request.ended:
            self._count_running()
            del self._clients[request.id]
            if not client.tokens:
                self.prompts -= 1
            elif client.tokens > 1:
                self._tally.tpot_s.append((now_s - client.first_s) / (client.tokens - 1))
        if request.ended or client.tokens == 1:
            self._load.token_came(self)

    def _count_running(self) -> None:
        now_s = self.cluster.agenda.now_s
        running = self.cluster.dispatcher.requests_running
        self._tally.running_s += running * (now_s - self._counted_s)
        self._counted_s = now_s


_STAGES_REPORT_S = 1.0  # until every stage has told the coordinator of itself


def _percentiles(values: Sequence[float]) -> Percentiles:
    """Nearest rank."""
    ordered = sorted(values)

    def at(share: float) -> float:
        return ordered[math.ceil(share * len(ordered)) - 1] if ordered else math.nan

    return Percentiles(p50_s=at(0.5), p95_s=at(0.95))
