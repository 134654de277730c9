"""A cluster of real stages in one process, driven by hand over the in-memory transport."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch
from engine_under_test import ENGINE, PAGE_TOKENS, backend_of, make_runner
from in_memory_network import InMemoryNetwork

from runtime.engine.backend import Backend, Opened
from runtime.engine.limits import EngineLimits
from runtime.engine.ranks import Runner
from runtime.engine.stage import Stage
from runtime.protocol.data import (
    DType,
    Entry,
    Flag,
    Hop,
    Kind,
    Message,
    Reason,
    Route,
    Sampling,
    StageStatus,
)
from runtime.protocol.engine_options import EngineOptions
from runtime.transport.base import Received, Transport

GENERATION = 7
OURS = EngineOptions()
GREEDY = Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=16)
MAX_TURNS = 10_000


@dataclass(kw_only=True)
class Answer:
    """What the coordinator heard of one (request, epoch)."""

    token_ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    finished: Reason = Reason.NONE
    nacks: list[tuple[str, Reason]] = field(default_factory=list)


class NeverWaits:
    """A transport whose stage takes its turns by hand, so it must not wait for messages."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def send(self, peer: str, message: Message) -> None:
        self._transport.send(peer, message)

    def receive(self, *, timeout_s: float) -> list[Received]:
        assert timeout_s >= 0
        return self._transport.receive(timeout_s=0)

    def close(self) -> None:
        self._transport.close()


class StageCluster:
    """Stages by name with their layers; the test plays the coordinator."""

    def __init__(
        self,
        checkpoint: Path,
        layers: dict[str, tuple[int, int]],
        *,
        pages: int = 400,
        max_batch_tokens: int = 16,
        max_context_tokens: int = 128,
        smaller_steps: Mapping[str, int] = MappingProxyType({}),
        few_pages: Mapping[str, int] = MappingProxyType({}),
        options: EngineOptions = OURS,
        engines: Mapping[str, str] = MappingProxyType({}),
        computed_in: Mapping[str, str] = MappingProxyType({}),
        wire_dtype: torch.dtype | None = None,
        runners: Mapping[str, Runner] = MappingProxyType({}),
        backends: Mapping[str, Backend] = MappingProxyType({}),
        network: InMemoryNetwork | None = None,
    ) -> None:
        network = network or InMemoryNetwork()
        self.coordinator = network.join("coordinator")
        self.answers: dict[tuple[int, int], Answer] = {}
        self.statuses: dict[str, StageStatus] = {}
        self.told: dict[tuple[str, int], StageStatus] = {}  # by stage and generation
        self.stages: dict[str, Stage] = {}
        self.runners: dict[str, Runner] = {}
        self.transports: dict[str, Transport] = {"coordinator": self.coordinator}
        for name, (first, end) in layers.items():
            self.transports[name] = network.join(name)
            if name not in backends:
                self.runners[name] = runners.get(name) or make_runner(
                    checkpoint,
                    range(first, end),
                    pages=few_pages.get(name, pages),
                    max_context_tokens=max_context_tokens,
                    max_batch_tokens=max_batch_tokens,
                    engine=engines.get(name, ENGINE),
                    computed_in=computed_in.get(name, ""),
                    wire_dtype=wire_dtype,
                )
            self.stages[name] = Stage(
                name,
                Opened(
                    backend=backends.get(name) or backend_of(self.runners[name], checkpoint),
                    limits=EngineLimits(
                        page_tokens=PAGE_TOKENS,
                        max_batch_tokens=smaller_steps.get(name, max_batch_tokens),
                        max_context_tokens=max_context_tokens,
                    ),
                ),
                NeverWaits(self.transports[name]),
                options,
                generation=GENERATION,
            )

    def prompt(
        self,
        request: int,
        token_ids: Iterable[int],
        hops: Iterable[tuple[str, int, int]],
        *,
        sampling: Sampling = GREEDY,
        epoch: int = 1,
        generation: int = GENERATION,
        digests: tuple[bytes, ...] = (),
    ) -> None:
        ids = np.array(list(token_ids), dtype="<i4")
        route = Route(
            hops=tuple(Hop(node=node, first=first, end=end) for node, first, end in hops),
            sampling=sampling,
            prompt_tokens=len(ids),
            block_digests=digests,
        )
        entry = Entry(
            request=request,
            epoch=epoch,
            position=0,
            n_tokens=len(ids),
            hop=0,
            flags=Flag.PROMPT_END,
            route=route,
        )
        message = Message(
            kind=Kind.PROMPT,
            generation=generation,
            entries=(entry,),
            dtype=DType.INT32,
            payload=ids.tobytes(),
        )
        self.answers[request, epoch] = Answer()
        self.coordinator.send(route.hops[0].node, message)

    def release(self, request: int, *, epoch: int = 1, nodes: Iterable[str] = ()) -> None:
        entry = Entry(request=request, epoch=epoch, position=0, n_tokens=0, hop=0)
        for node in nodes or self.stages:
            self.coordinator.send(
                node, Message(kind=Kind.RELEASE, generation=GENERATION, entries=(entry,))
            )

    def turn(self) -> None:
        """Each stage takes one turn of its loop; then the coordinator listens."""
        if all(stage.is_held or not stage.has_work for stage in self.stages.values()):
            time.sleep(0.001)  # for a grammar that is compiled beside the stage
        for stage in self.stages.values():
            turns = iter((False, True))
            stage.run(lambda turns=turns: next(turns))
        for received in self.coordinator.receive(timeout_s=0):
            message = received.message
            if message.kind == Kind.STATUS:
                self.statuses[received.sender] = message.status
                self.told[received.sender, message.generation] = message.status
                continue
            for index, entry in enumerate(message.entries):
                answer = self.answers.setdefault((entry.request, entry.epoch), Answer())
                if message.kind == Kind.NACK:
                    answer.nacks.append((received.sender, entry.reason))
                else:
                    ids = np.frombuffer(message.payload, dtype="<i4")
                    answer.token_ids.append(int(ids[index]))
                    answer.positions.append(entry.position)
                    if Flag.FINISHED in entry.flags:
                        answer.finished = entry.reason

    def run_until(self, condition) -> None:
        for _ in range(MAX_TURNS):
            if condition():
                return
            self.turn()
        raise AssertionError(f"the condition did not come true in {MAX_TURNS} turns")

    def run_all(self) -> None:
        """Until every request has finished or was refused."""
        self.run_until(
            lambda: all(
                answer.finished is not Reason.NONE or answer.nacks
                for answer in self.answers.values()
            )
        )

    def release_all(self) -> None:
        """Release everything, let it arrive, and check that no page was lost."""
        for request, epoch in self.answers:
            self.release(request, epoch=epoch)
        for _ in range(3):
            self.turn()
        for name, stage in self.stages.items():
            stage.check_pages()
            assert stage.stats().kv_pages_used == 0, name
            assert self.statuses[name].pages_used == 0, name
