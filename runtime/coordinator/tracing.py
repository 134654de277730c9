"""Asks stages where the time of ended requests went, and keeps the answers for helixweb.

How far their monotonic clocks are from the coordinator's follows from the questions and answers.
"""

import secrets
import statistics
import zlib
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from itertools import islice

from runtime.coordinator.live_request import LiveRequest
from runtime.coordinator.request_life import RequestLife
from runtime.coordinator.span_assembly import TimeLine, assemble, assemble_engines
from runtime.protocol.control import ServingPlan
from runtime.protocol.data import Message
from runtime.protocol.request_trace import RequestTrace
from runtime.protocol.stage_spans import StageSpans, unpack_spans
from runtime.protocol.trace_context import TraceContext

EXCHANGES_KEPT = 64
BURST_S = 4.0  # of traces may be asked for at once
PATIENCE_S = 5.0  # for a stage that does not answer
MOST_ASKED = 256  # requests whose stages have not all answered
MOST_KEPT = 200  # traces that helixweb does not have yet; the oldest go first
MOST_PER_REPORT = 20
TOKEN_TIMES_KEPT = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A question and its answer; `heard_s` and `told_s` on the node's clock.

    The question may have lain at the node for up to `unseen_s` before it was heard, while a step
    ran; the coordinator takes in answers at once.
    """

    asked_s: float
    heard_s: float
    unseen_s: float
    told_s: float
    answered_s: float

    @property
    def rtt_s(self) -> float:
        """Time under way, both ways together; at most, as it includes the time unseen."""
        return (self.answered_s - self.asked_s) - (self.told_s - self.heard_s)

    @property
    def least_rtt_s(self) -> float:
        """What is certain of it."""
        return max(0.0, self.rtt_s - self.unseen_s)

    @property
    def least_offset_s(self) -> float:
        """The node's clock minus ours is at least this: no answer comes before it was told."""
        return self.told_s - self.answered_s


class ClockOffsets:
    """Owns how far the clocks of stages are from ours; the tracer calls it.

    The last exchanges of every node.
    """

    def __init__(self) -> None:
        self._exchanges: dict[str, deque[Exchange]] = defaultdict(
            lambda: deque(maxlen=EXCHANGES_KEPT)
        )

    def add(self, node: str, exchange: Exchange) -> None:
        self._exchanges[node].append(exchange)

    def forget(self, node: str) -> None:
        """Its stage was restarted, perhaps with its machine and clock."""
        self._exchanges.pop(node, None)

    def of(self, node: str) -> float:
        """The node's clock minus ours in seconds. Raises KeyError before the first exchange.

        What the quickest answer leaves possible, and half the usual round trip, taking both ways
        for equally long.
        """
        if node not in self._exchanges:
            raise KeyError(f"the clock of {node!r} was never compared with ours")
        exchanges = self._exchanges[node]
        usual_s = statistics.median(exchange.least_rtt_s for exchange in exchanges)
        quickest_s = min(exchange.rtt_s for exchange in exchanges)
        least_s = max(exchange.least_offset_s for exchange in exchanges)
        return least_s + max(0.0, min(usual_s, quickest_s)) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Packed:
    """A trace that waits: as objects it takes twenty times the memory, 50 to 500 KB."""

    request: str
    packed: bytes

    @classmethod
    def pack(cls, trace: RequestTrace) -> "_Packed":
        text = trace.model_dump_json().encode()
        return cls(request=trace.request, packed=zlib.compress(text, 1))

    def unpack(self) -> RequestTrace:
        return RequestTrace.model_validate_json(zlib.decompress(self.packed))


@dataclass(slots=True, kw_only=True)
class _Asked:
    request: LiveRequest
    ended_s: float
    asked_s: float
    missing: set[str]
    told: dict[str, StageSpans] = field(default_factory=dict)


class Tracer:
    """Owns the traces of ended requests; the dispatcher fills it, the report empties it.

    At most `traces_per_s` of the requests that end, in bursts of a few; 0: none.

    `clock` is that of the dispatcher; `unix_time` says when a request arrived.
    """

    def __init__(
        self,
        *,
        traces_per_s: float,
        clock: Callable[[], float],
        unix_time: Callable[[], float],
        tell: Callable[[RequestTrace, TraceContext | None], None] | None = None,
    ) -> None:
        """`tell` is called with every trace as well."""
        self._tell = tell
        self._traces_per_s = traces_per_s
        self._clock = clock
        self._unix_time = unix_time
        self._allowance = self._most_allowed = traces_per_s * BURST_S
        self._counted_at = clock()
        self._offsets = ClockOffsets()
        self._asked: OrderedDict[int, _Asked] = OrderedDict()  # by request, oldest first
        self._waiting: deque[_Packed] = deque(maxlen=MOST_KEPT)

    def ended(self, request: LiveRequest) -> bool:
        """True if the stages of its pipeline must be asked in their RELEASE."""
        if not self.allows():
            return False
        now = self._clock()
        tokens = request.token_times
        asked = _Asked(
            request=request,
            ended_s=tokens[-1] if request.is_complete and tokens else now,
            asked_s=now,
            missing=set(request.nodes),
        )
        self._asked[request.id] = asked
        if not asked.missing:
            self._finish(request.id)
        return bool(asked.missing)

    def ended_at_instances(self, life: RequestLife, plan: ServingPlan) -> None:
        """A request ended that whole-model instances had, or that waited for one."""
        if not self.allows():
            return
        ended_s = self._clock()
        line = assemble_engines(life, ended_s=ended_s)
        self._keep(life, plan, line, ended_s=ended_s, number=secrets.randbits(63))

    def hear(self, sender: str, message: Message) -> None:
        """A stage's TRACE. Raises FrameError for one that is malformed."""
        spans = unpack_spans(message.payload)
        for entry in message.entries:
            asked = self._asked.get(entry.request)
            if asked is None or sender not in asked.missing or entry.epoch != asked.request.epoch:
                continue
            exchange = Exchange(
                asked_s=asked.asked_s,
                heard_s=spans.heard_s,
                unseen_s=spans.heard_unseen_s,
                told_s=spans.told_s,
                answered_s=self._clock(),
            )
            self._offsets.add(sender, exchange)
            asked.told[sender] = spans
            asked.missing.discard(sender)
            if not asked.missing:
                self._finish(entry.request)

    def expire(self) -> None:
        """Tell what is known of requests whose stages do not answer."""
        oldest = self._clock() - PATIENCE_S
        for number, asked in list(self._asked.items()):
            if asked.asked_s < oldest:
                self._finish(number)

    def forget_clock(self, node: str) -> None:
        """The stage of `node` was restarted, perhaps with its machine."""
        self._offsets.forget(node)
        for asked in self._asked.values():  # those times are on the clock of before
            asked.told.pop(node, None)

    def waiting(self) -> tuple[RequestTrace, ...]:
        """The oldest that helixweb does not have yet, as many as a report takes."""
        return tuple(packed.unpack() for packed in islice(self._waiting, MOST_PER_REPORT))

    def allows(self) -> bool:
        """Whether one more may be traced now, which is then counted."""
        now = self._clock()
        earned = (now - self._counted_at) * self._traces_per_s
        self._allowance = min(self._most_allowed, self._allowance + earned)
        self._counted_at = now
        if self._allowance < 1 or len(self._asked) >= MOST_ASKED:
            return False
        self._allowance -= 1
        return True

    def delivered(self, traces: Collection[RequestTrace]) -> None:
        """helixweb has these."""
        known = {trace.request for trace in traces}
        kept = [packed for packed in self._waiting if packed.request not in known]
        self._waiting = deque(kept, maxlen=MOST_KEPT)

    def _finish(self, number: int) -> None:
        asked = self._asked.pop(number)
        request, ended_s = asked.request, asked.ended_s
        offsets = {node: self._offsets.of(node) for node in asked.told}
        line = assemble(request, asked.told, offsets, ended_s=ended_s)
        self._keep(request, request.serving.plan, line, ended_s=ended_s, number=request.id)

    def _keep(
        self, life: RequestLife, plan: ServingPlan, line: TimeLine, *, ended_s: float, number: int
    ) -> None:
        """For helixweb, and for OpenTelemetry if a collector is known."""
        arrived_s, hops = life.arrived_at, life.hops
        trace = RequestTrace(
            request=f"{number:016x}",
            generation=plan.generation,
            model_name=plan.model_name,
            arrived_at=self._unix_time() - (self._clock() - arrived_s),
            outcome=life.outcome,
            prompt_tokens=life.prompt_tokens or 0,
            output_tokens=life.output_tokens,
            queue_s=life.queue_s if hops else ended_s - arrived_s,
            ttft_s=life.ttft_s,
            e2e_s=ended_s - arrived_s,
            attempts=max(1, len(life.attempts)),
            pipeline=hops,
            parts=line.parts,
            rows=line.rows,
            token_times_s=tuple(
                round(at - arrived_s, 6) for at in life.token_times[:TOKEN_TIMES_KEPT]
            ),
        )
        self._waiting.append(_Packed.pack(trace))
        if self._tell is not None:
            self._tell(trace, life.origin.context)
