"""Doubles for the coordinator's tests: a byte-level checkpoint, and stages that follow a script.

`ScriptedStages` speaks the real frames (everything passes `encode` and `decode`) and keeps books
like a real stage: what it was sent, and what it has not been told to forget.
"""

import json
import random
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import httpx
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from planner.domain.cluster import SINK, SOURCE
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Workload
from planner.routers.choice import RouterName
from runtime.coordinator.app import PipelineBackend
from runtime.coordinator.dispatcher import Dispatcher
from runtime.coordinator.instance_group import SharedParts
from runtime.coordinator.instance_service import InstanceService
from runtime.coordinator.local_pipelines import LocalPipelines
from runtime.coordinator.request_stats import RequestStats
from runtime.coordinator.serving import Routing, Serving
from runtime.coordinator.tokenizer import load_tokenizer
from runtime.coordinator.tracing import Tracer
from runtime.protocol.control import PeerAddress, ServingPlan
from runtime.protocol.data import (
    DType,
    Entry,
    Flag,
    Kind,
    Message,
    Reason,
    Route,
    StageStatus,
    decode,
    encode,
)
from runtime.protocol.sampled import Logprobs, pack_sampled
from runtime.transport.base import Received, UnknownPeer
from runtime.transport.heartbeats import Loss, PeerEvent

TOKEN_TIMEOUT_S = 90.0
SPECIALS = ["<|bos|>", "<|eos|>", "<|user|>", "<|assistant|>", "<|system|>"]
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message.role == 'assistant' and loop.first %}"
    "{{ raise_exception('the user must speak first') }}{% endif %}"
    "<|{{ message.role }}|>{{ message.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def write_checkpoint(directory: Path, **tokenizer_config: object) -> Path:
    """One token per byte: every character beyond ASCII is split over tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(
        models.BPE(vocab={char: index for index, char in enumerate(alphabet)}, merges=[])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in SPECIALS])
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {"chat_template": TEMPLATE, "bos_token": "<|bos|>", "eos_token": "<|eos|>"}
    (directory / "tokenizer_config.json").write_text(json.dumps(config | tokenizer_config))
    (directory / "config.json").write_text(
        json.dumps({"vocab_size": 261, "eos_token_id": tokenizer.token_to_id("<|eos|>")})
    )
    return directory


RANGES = {"a": (0, 4), "b": (0, 2), "c": (2, 6), "d": (4, 6)}
WEIGHTS = {
    SOURCE: {"a": 2.0, "b": 1.0},
    "a": {"c": 1.0, "d": 1.0},
    "b": {"c": 1.0},
    "c": {SINK: 2.0},
    "d": {SINK: 1.0},
}


def serving_plan(checkpoint: Path, **changes: object) -> ServingPlan:
    fields: dict[str, object] = {
        "deployment_id": 1,
        "generation": 7,
        "model_name": "tiny",
        "checkpoint": str(checkpoint),
        "num_layers": 6,
        "partial_inference": True,
        "placement": Placement(
            layers={name: LayerRange(first=first, end=end) for name, (first, end) in RANGES.items()}
        ),
        "routing_weights": WEIGHTS,
        "workload": Workload(mean_prompt_tokens=20, mean_output_tokens=20),
        "max_context_tokens": 256,
        "page_tokens": 4,
        "max_queued_requests": 2,
        "peers": tuple(
            PeerAddress(name=name, endpoint="tcp://127.0.0.1:1", public_key="k" * 40)
            for name in RANGES
        ),
    }
    return ServingPlan.model_validate(fields | changes)


def routing(name: RouterName = "iwrr", *, clock: Callable[[], float] = lambda: 0.0) -> Routing:
    """Routing without measured rates, unless `clock` moves."""
    return Routing(name=name, rng=random.Random(1), clock=clock)


def make_serving(
    checkpoint: Path,
    *,
    router: RouterName = "iwrr",
    clock: Callable[[], float] = lambda: 0.0,
    **changes: object,
) -> Serving:
    return Serving(
        plan=serving_plan(checkpoint, **changes),
        tokenizer=load_tokenizer(checkpoint),
        routing=routing(router, clock=clock),
    )


class Clock:
    """A monotonic clock that moves only when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def see(dispatcher: Dispatcher, *nodes: str, loss: Loss | None = None) -> None:
    """News of these nodes' heartbeats: they are answered, or how the processes are lost."""
    for node in nodes:
        dispatcher.see(PeerEvent(peer=node, loss=loss, silent_s=0.05 if loss else 0.0))


class ScriptedStages:
    """All stages of a plan. A prompt is answered by `script(prompt ids)`, a token per `step`."""

    def __init__(self, script: Callable[[list[int]], Iterable[int]]) -> None:
        self.script = script
        self.dispatcher: Dispatcher | None = None
        self._met: set[tuple[Dispatcher, str]] = set()
        self.sent: list[tuple[str, Message]] = []
        self.held: dict[tuple[int, int], set[str]] = {}  # (request, epoch) -> nodes with pages
        self.routes: dict[tuple[int, int], Route] = {}
        self.generations: dict[tuple[int, int], int] = {}  # in which each request was begun
        self.retired: set[tuple[str, int]] = set()  # node and generation
        self.lives: set[int | None] = set()  # of the processes that those were meant for
        self.unreachable: set[str] = set()
        self.incarnations = dict.fromkeys(RANGES, 1)
        self._scripts: dict[tuple[int, int], list[int]] = {}
        self._positions: dict[tuple[int, int], int] = {}
        self._frozen: dict[str, list[Message]] = {}  # what they will read when they go on
        self.generation = 7

    def send(self, peer: str, message: Message) -> None:
        if peer in self.unreachable:
            raise UnknownPeer(peer)
        message = decode(*map(bytes, encode(message)))
        self.sent.append((peer, message))
        if peer in self._frozen:
            self._frozen[peer].append(message)
        else:
            self._read(peer, message)

    def _read(self, peer: str, message: Message) -> None:
        if message.kind == Kind.RETIRE:
            self.retired.add((peer, message.generation))
            self.lives.add(message.life)
            for key in [key for key, own in self.generations.items() if own == message.generation]:
                if peer in self.held.get(key, ()):
                    self.held[key].discard(peer)
                    self._scripts.pop(key, None)
        for entry in message.entries:
            key = (entry.request, entry.epoch)
            if message.kind == Kind.PROMPT:
                assert entry.route is not None
                assert entry.route.hops[0].node == peer
                payload = memoryview(message.payload).cast("i").tolist()
                assert len(payload) == entry.n_tokens == entry.route.prompt_tokens
                self.routes[key] = entry.route
                self.generations[key] = message.generation
                self.held[key] = {hop.node for hop in entry.route.hops}
                self._scripts[key] = list(self.script(payload))
                self._positions[key] = entry.n_tokens
            elif message.kind == Kind.RELEASE:
                self.held.get(key, set()).discard(peer)
                self._scripts.pop(key, None)

    @property
    def nodes_with_pages(self) -> set[str]:
        return {node for nodes in self.held.values() for node in nodes}

    def report(
        self,
        *nodes: str,
        pages: int = 10_000,
        page_tokens: int = 4,
        generation: int | None = None,
        ranges: Mapping[str, tuple[int, int]] = RANGES,
    ) -> None:
        """STATUS of the named nodes, or of all; `generation` None: of the one they all serve.

        Before its first one a node has answered a heartbeat.
        """
        for node in nodes or ranges:
            if self.dispatcher is not None and (self.dispatcher, node) not in self._met:
                self._met.add((self.dispatcher, node))
                see(self.dispatcher, node)
            first, end = ranges[node]
            status = StageStatus(
                incarnation=self.incarnations[node],
                first=first,
                end=end,
                page_tokens=page_tokens,
                pages_total=pages,
                pages_used=0,
            )
            own = self.generation if generation is None else generation
            self.deliver(node, Message(kind=Kind.STATUS, generation=own, status=status))

    def restart(self, node: str) -> None:
        """`node` forgets every request and reports anew."""
        for nodes in self.held.values():
            nodes.discard(node)
        self.incarnations[node] += 1
        self.report(node)

    def forget(self) -> None:
        """What was sent to the stages, and all of requests that they were told to forget."""
        self.sent.clear()
        for key in [key for key, nodes in self.held.items() if not nodes]:
            del self.held[key], self.routes[key], self._positions[key], self.generations[key]

    def freeze(self, node: str) -> None:
        """`node` does nothing any more, like a stopped process."""
        self._frozen.setdefault(node, [])

    def thaw(self) -> None:
        """Frozen nodes go on, with what they were sent meanwhile."""
        frozen, self._frozen = self._frozen, {}
        for node, messages in frozen.items():
            for message in messages:
                self._read(node, message)

    def begin_again(self, node: str) -> None:
        """A frozen node is another process now, which has forgotten every request."""
        self._frozen.pop(node, None)
        for nodes in self.held.values():
            nodes.discard(node)
        self.incarnations[node] += 1

    def step(self) -> bool:
        """The next token of every request; False when there is nothing to do."""
        for key, script in list(self._scripts.items()):
            if script and self._goes_on(key):
                self.emit(key, script.pop(0))
        return any(script and self._goes_on(key) for key, script in self._scripts.items())

    def _goes_on(self, key: tuple[int, int]) -> bool:
        return self._frozen.keys().isdisjoint(hop.node for hop in self.routes[key].hops)

    def emit(self, key: tuple[int, int], token: int, *, position: int | None = None) -> None:
        route = self.routes[key]
        at = self._positions[key] if position is None else position
        if position is None:
            self._positions[key] += 1
        logprobs = None
        if route.sampling.logprobs is not None:
            others = tuple((token + other, -0.5 - other) for other in range(3))
            logprobs = Logprobs(token=-0.5, most_likely=others[: route.sampling.logprobs])
        reason = Reason.NONE
        if token in route.sampling.stop_token_ids:
            reason = Reason.STOP
        elif at - route.prompt_tokens + 1 == route.sampling.max_tokens:
            reason = Reason.LENGTH
        if reason is not Reason.NONE:
            self._scripts.pop(key, None)
        entry = Entry(
            request=key[0],
            epoch=key[1],
            position=at,
            n_tokens=1,
            hop=0,
            flags=(Flag.NONE if reason is Reason.NONE else Flag.FINISHED)
            | (Flag.NONE if logprobs is None else Flag.LOGPROBS),
            reason=reason,
        )
        self.deliver(
            route.hops[-1].node,
            Message(
                kind=Kind.SAMPLED,
                generation=self.generations[key],
                entries=(entry,),
                dtype=DType.INT32,
                payload=pack_sampled([token], [logprobs]),
            ),
        )

    def refuse(self, key: tuple[int, int], reason: Reason) -> None:
        """NACK from the first stage of the request."""
        self._scripts.pop(key, None)
        entry = Entry(request=key[0], epoch=key[1], position=0, n_tokens=0, hop=0, reason=reason)
        self.deliver(
            self.routes[key].hops[0].node,
            Message(kind=Kind.NACK, generation=self.generations[key], entries=(entry,)),
        )

    def deliver(self, sender: str, message: Message) -> None:
        assert self.dispatcher is not None
        self.dispatcher.receive(
            Received(sender=sender, message=decode(*map(bytes, encode(message))))
        )


def make_dispatcher(
    stages: ScriptedStages,
    *,
    clock: Callable[[], float],
    request_timeout_s: float = 120.0,
    migrate_after_s: float = 30.0,
    tracer: Tracer | None = None,
) -> tuple[Dispatcher, RequestStats]:
    stats = RequestStats(window_s=10.0, clock=clock)
    ids = iter(range(1, 1_000_000))
    dispatcher = Dispatcher(
        transport=stages,
        stats=stats,
        clock=clock,
        new_request_id=lambda: next(ids),
        request_timeout_s=request_timeout_s,
        migrate_after_s=migrate_after_s,
        tracer=tracer,
    )
    stages.dispatcher = dispatcher
    return dispatcher, stats


def make_instances(
    dispatcher: Dispatcher,
    *,
    http: httpx.AsyncClient,
    clock: Callable[[], float],
) -> tuple[InstanceService, PipelineBackend]:
    """Instances beside the pipelines of `dispatcher`, and these as a backend."""
    backend = PipelineBackend(
        dispatcher=dispatcher,
        unix_time=lambda: 1_700_000_000.0,
        new_answer_id=lambda: "0001",
        new_seed=lambda: 11,
    )
    around = SharedParts(
        dispatcher=dispatcher,
        http=http,
        token_timeout_s=TOKEN_TIMEOUT_S,
        pipelines=LocalPipelines(backend),
        clock=clock,
    )
    return InstanceService(around), backend
