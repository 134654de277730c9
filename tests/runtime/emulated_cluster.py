"""Stages without a model in one process: real loop, intake, batcher and pages; no time passes."""

from collections.abc import Iterable

import numpy as np
from in_memory_network import InMemoryNetwork

from planner.domain.layer_times import LayerTimes
from planner.domain.model_spec import ModelSpec
from planner.domain.profile import ComputeProfile
from runtime.engine.backend import Opened
from runtime.engine.emulated_runner import EmulatedRunner
from runtime.engine.limits import EngineLimits
from runtime.engine.stage import Stage
from runtime.protocol.data import DType, Entry, Flag, Hop, Kind, Message, Reason, Route, Sampling
from runtime.protocol.emulation import Emulation
from runtime.protocol.engine_options import EngineOptions
from runtime.transport.base import Received, Transport

LAYERS = 8
MODEL = ModelSpec(
    name="m",
    num_layers=LAYERS,
    activation_bytes_per_token=1000.0,
    token_bytes=4.0,
    bytes_per_layer=1e6,
)
TIMES = LayerTimes(prompt=((10, 0.1), (20, 0.15)), decode=((1, 0.01), (4, 0.02)))


def emulation_of(
    *, pages: int = 400, page_tokens: int = 4, times: LayerTimes = TIMES, **changes: object
) -> Emulation:
    profile = ComputeProfile(
        name="T4",
        gpu="T4",
        vram_bytes=1e9,
        max_layers=LAYERS,
        tokens_per_s=(100.0,) * LAYERS,
        kv_capacity_token_layers=(float(pages * page_tokens),) * LAYERS,
        layer_times=times,
    )
    return Emulation.model_validate(
        {"profile": profile, "model": MODEL, "vocab_size": 300} | changes
    )


class NeverWaits:
    """A transport whose stage takes its turns by hand."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    def send(self, peer: str, message: Message) -> None:
        self._inner.send(peer, message)

    def receive(self, *, timeout_s: float) -> list[Received]:
        return self._inner.receive(timeout_s=0)

    def close(self) -> None:
        self._inner.close()


class EmulatedCluster:
    """Stages by name with their layers; the test plays the coordinator."""

    def __init__(
        self,
        layers: dict[str, tuple[int, int]],
        *,
        pages: int = 400,
        page_tokens: int = 4,
        options: EngineOptions,
    ) -> None:
        network = InMemoryNetwork()
        self.coordinator = network.join("coordinator")
        self.hops = tuple(Hop(node=node, first=a, end=b) for node, (a, b) in layers.items())
        self.stages: dict[str, Stage] = {}
        self.slept_s: dict[str, list[float]] = {name: [] for name in layers}
        for name, (first, end) in layers.items():
            self.stages[name] = Stage(
                name,
                Opened(
                    backend=EmulatedRunner(
                        emulation_of(pages=pages, page_tokens=page_tokens),
                        first=first,
                        end=end,
                        page_tokens=page_tokens,
                        clock=lambda: 0.0,
                        sleep=self.slept_s[name].append,
                    ),
                    limits=EngineLimits(
                        page_tokens=page_tokens, max_batch_tokens=256, max_context_tokens=128
                    ),
                ),
                NeverWaits(network.join(name)),
                options,
                generation=1,
            )

    def prompt(
        self, request: int, token_ids: Iterable[int], *, max_tokens: int, epoch: int
    ) -> None:
        ids = np.array(list(token_ids), dtype="<i4")
        sampling = Sampling(
            temperature=1.0, top_p=1.0, top_k=0, seed=request, max_tokens=max_tokens
        )
        entry = Entry(
            request=request,
            epoch=epoch,
            position=0,
            n_tokens=len(ids),
            hop=0,
            flags=Flag.PROMPT_END,
            route=Route(hops=self.hops, sampling=sampling, prompt_tokens=len(ids)),
        )
        message = Message(
            kind=Kind.PROMPT,
            generation=1,
            entries=(entry,),
            dtype=DType.INT32,
            payload=ids.tobytes(),
        )
        self.coordinator.send(self.hops[0].node, message)

    def release(self, request: int, *, epoch: int) -> None:
        entry = Entry(request=request, epoch=epoch, position=0, n_tokens=0, hop=0)
        for name in self.stages:
            self.coordinator.send(name, Message(kind=Kind.RELEASE, generation=1, entries=(entry,)))

    def turn(self) -> list[tuple[Entry, int | None]]:
        """Each stage takes a turn; what the coordinator heard: (entry, token; None if refused)."""
        for stage in self.stages.values():
            turns = iter((False, True))
            stage.run(lambda turns=turns: next(turns))
        heard: list[tuple[Entry, int | None]] = []
        for received in self.coordinator.receive(timeout_s=0):
            message = received.message
            ids = np.frombuffer(message.payload, dtype="<i4") if message.payload else []
            for index, entry in enumerate(message.entries):
                heard.append((entry, int(ids[index]) if message.kind == Kind.SAMPLED else None))
                assert entry.reason is not Reason.STAGE_ERROR
        return heard
