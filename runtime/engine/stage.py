"""A stage: admit, batch, run, send. Read `Stage.run` first: it is the whole life of a stage.

One thread, no spinning: it blocks on the transport while nothing waits to be run.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from runtime.engine.admission import Admission
from runtime.engine.backend import Opened, StepResult
from runtime.engine.batcher import Pick, pick_step
from runtime.engine.coordinator_duties import CoordinatorDuties
from runtime.engine.coordinators import Coordinators
from runtime.engine.generation import Generation
from runtime.engine.hosting import Hosting
from runtime.engine.intake import Intake
from runtime.engine.link_cuts import LinkCuts
from runtime.engine.outgoing import Outgoing, rows_messages, sampled_messages
from runtime.engine.pages import BlockTable
from runtime.engine.prompt_steps import PromptSteps
from runtime.engine.running_requests import RunningRequests
from runtime.engine.sequence import Sequence, Work
from runtime.engine.shares import Shares
from runtime.engine.stage_counters import StageCounters
from runtime.engine.stage_process import StageProcess
from runtime.engine.step_pace import StepPace
from runtime.protocol.control import PeerAddress, StageStats
from runtime.protocol.coordinators import is_coordinator
from runtime.protocol.data import DTYPE_BYTES, FrameError, Kind, MeasureOrder, Message, Reason
from runtime.protocol.engine_options import EngineOptions
from runtime.protocol.stage_pipe import StatsEvent
from runtime.transport.base import Received, SendError, Transport

logger = logging.getLogger(__name__)

T = TypeVar("T")

REPORT_INTERVAL_S = 1.0
ORPHAN_AFTER_S = 600.0  # far longer than the coordinator waits for a silent request
_IDLE_WAIT_S = 0.2  # how long a stop may go unnoticed
_LOOK_AGAIN_S = 5e-3  # whether what all requests here wait for is made
_BRING_ROWS = (Kind.PROMPT, Kind.ROWS, Kind.SAMPLED)
_AT_ONCE_S = 1e-3  # a receive that takes longer has waited: what it gives has just come


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ran:
    """What came of a step, and when it ran."""

    result: StepResult
    began_s: float
    ended_s: float


class Stage:
    """Owns one stage: admits requests, builds batches, runs and sends; `serve` runs it.

    Runs the layers of the `opened` backend for the requests whose rows come in; the process's
    own thread calls `run`.

    It begins with one `generation`, whose peers are `peers`; others come beside it by the orders of
    its `process`, if there are holdings to change layers and pages by, and go when all coordinators
    that live have retired them.
    """

    def __init__(
        self,
        name: str,
        opened: Opened,
        transport: Transport,
        options: EngineOptions,
        *,
        generation: int,
        peers: tuple[PeerAddress, ...] = (),
        process: StageProcess | None = None,
    ) -> None:
        """Without a `process` it has one whose parts do nothing."""
        process = process or StageProcess()
        self._name = name
        self._limits = opened.limits
        self._backend = opened.backend
        self._transport = transport
        self._options = options
        self._process = process
        self._clock = process.clock
        self._looked_s = self._clock()  # when it last saw what had come
        self._counters = StageCounters(
            clock=self._clock, core_delay=process.core_delay, started_s=self._looked_s
        )
        self._pages_moved = False  # since they were last checked
        # came during a step and waits for its end; since when, at the earliest
        self._for_later: list[tuple[Received, float]] = []
        self.is_held = False  # rows wait, but what none of them can do without is in work
        self._shape = shape = opened.backend.shape
        self._coordinators = Coordinators(peer.name for peer in peers)
        self._hosting = Hosting(
            Generation(number=generation, layers=range(shape.first, shape.end), peers=peers),
            host=self,
            kv_manager=self._backend.kv_manager,
            holdings=opened.holdings,
            orders=process.orders,
            tell=process.tell,
            meet=self._meet,
        )
        self._take_requests_in(peers)
        self._next_report_s = self._clock()
        self._reported_pages = -1

    def _take_requests_in(self, peers: tuple[PeerAddress, ...]) -> None:
        """Make what admits requests, and what is said to those who asked for them."""
        kv_manager = self._backend.kv_manager
        self._running_requests = RunningRequests()
        self._pace = self._make_pace(peers)
        shares = Shares(
            self._running_requests,
            coordinators=lambda: self._coordinators.living,
            clock=self._clock,
        )
        self._admission = Admission(
            kv_manager,
            prefixes=self._options.prefixes,
            running_requests=self._running_requests,
            shares=shares,
        )
        self._intake = Intake(
            self._name,
            self._shape,
            max_context_tokens=self._limits.max_context_tokens,
            ranges=self._hosting.ranges,
            running_requests=self._running_requests,
            admit=self._admission.admit,
            forget=self._forget,
            is_lost=self._coordinators.is_lost,
        )
        self._duties = CoordinatorDuties(
            self._coordinators,
            transport=self._transport,
            incarnation=self._process.incarnation,
            shares=shares,
            intake=self._intake,
            hosting=self._hosting,
            kv_manager=kv_manager,
            clock=self._clock,
        )

    def _make_pace(self, peers: tuple[PeerAddress, ...]) -> StepPace:
        return StepPace(
            self._options,
            running_requests=self._running_requests,
            link_cuts=LinkCuts(
                PromptSteps(least=self._limits.page_tokens, most=self._limits.max_batch_tokens),
                row_bytes=self._shape.hidden_size * DTYPE_BYTES[self._shape.dtype],
                link_stats=self._process.link_stats,
                clock=self._clock,
            ),
            shared_cores=self._process.cores_shared_by(peers),
            most_decodes=self._limits.max_batch_tokens,
            clock=self._clock,
        )

    def run(self, stopped: Callable[[], bool]) -> None:
        """Serve until `stopped()`, or until it has left as its `departure` says."""
        while not stopped() and not self._has_left():
            self._look_around()
            self._step()

    def _step(self) -> None:
        """Admit what has come, build a batch, run and sample it, send what came of it."""
        self._admit()
        if self._pace.gathering_s() > 0:
            return  # `_admit` waits for more decodes
        batch = self._build_batch()
        ran = self._run(batch) if batch else None
        if ran is not None:
            self._send_rows_and_tokens(batch, ran)

    def _look_around(self) -> None:
        """Follow generations that come and go, hear of coordinators, and report."""
        if self._hosting.advance():
            self._pages_moved = True
            self._report_soon()
        if self._duties.hear(self._process.peer_events(), now_s=self._clock()):
            self._report_soon()
        self._report()

    def _report_soon(self) -> None:
        """Coordinators wait for it."""
        self._next_report_s = self._clock()

    def _report(self) -> None:
        """Report the room to coordinators and the counters to the agent, both at every interval,
        and the room at once when requests took pages or gave some back."""
        now_s, pages = self._clock(), self._backend.kv_manager.used
        is_due = now_s >= self._next_report_s
        if not is_due and (pages == self._reported_pages or self.has_work):
            return
        self._reported_pages = pages
        self._duties.tell_room()
        if is_due:
            self._next_report_s = now_s + REPORT_INTERVAL_S
            self._tidy_up()
            self._process.tell(StatsEvent(stats=self.stats()))

    def _admit(self) -> None:
        waiting, self._for_later = self._for_later, []
        for received, since_s in waiting:
            unseen_s = self._clock() - since_s
            self._accept(received.message, sender=received.sender, unseen_s=unseen_s)
        arrived, unseen_s = self._receive(self._patience_s())
        for received in arrived:
            self._accept(received.message, sender=received.sender, unseen_s=unseen_s)

    def _admit_beside(self) -> None:
        """Take rows in while a device computes a step. What ends requests waits until it is over:
        theirs may be among its."""
        arrived, unseen_s = self._receive(0.0)
        for received in arrived:
            if self._for_later or received.message.kind not in _BRING_ROWS:
                self._for_later.append((received, self._looked_s - unseen_s))
            else:
                self._accept(received.message, sender=received.sender, unseen_s=unseen_s)

    def _has_left(self) -> bool:
        departure = self._process.departure
        if departure is None or not departure.is_wanted():
            return False
        if departure.is_to_be_said():
            self._duties.leave()
        return departure.is_over(
            serves=bool(self._hosting.ranges), holds=bool(self._running_requests.by_key)
        )

    def _meet(self, peers: tuple[PeerAddress, ...]) -> None:
        self._process.meet(peers)
        self._pace.share_cores(self._process.cores_shared_by(peers))
        self._coordinators.meet(peer.name for peer in peers)

    def _receive(self, patience_s: float) -> tuple[list[Received], float]:
        """What has come, and for how long at most it may have lain there while a step ran."""
        looks_s = self._clock()
        arrived = self._transport.receive(timeout_s=patience_s)
        unseen_s, self._looked_s = looks_s - self._looked_s, self._clock()
        has_waited = self._looked_s - looks_s > _AT_ONCE_S
        return arrived, 0.0 if has_waited else unseen_s

    def stats(self) -> StageStats:
        """Counters since the stage was made."""
        return self._counters.told(
            self._backend,
            running_requests=self._running_requests,
            pace=self._pace,
            prefix_tokens_total=self._admission.prefix_tokens_total,
            links=self._process.link_stats(),
        )

    def check_pages(self) -> None:
        """Raises KvCacheCorrupt unless free, held and kept pages are all pages, each once."""
        self._backend.kv_manager.check(self.tables())

    def tables(self) -> list[BlockTable]:
        """All that hold pages."""
        return [sequence.table for sequence in self._running_requests.by_key.values()]

    def make_room(self, pages: int) -> None:
        """Have requests hold no more pages than so many; the youngest are restarted."""
        while self._backend.kv_manager.used > pages:
            running_requests = self._running_requests.by_key.values()
            self._preempt(max(running_requests, key=lambda sequence: sequence.arrival))

    def _forget(self, sequence: Sequence) -> None:
        self._pages_moved = True
        self._backend.kv_manager.release(sequence.table)
        self._backend.forget(sequence.key)

    def _patience_s(self) -> float:
        longest_s = self._pace.gathering_s() if self.has_work else _IDLE_WAIT_S
        if self.is_held:
            longest_s = max(longest_s, _LOOK_AGAIN_S)
        return max(0.0, min(longest_s, self._next_report_s - self._clock()))

    @property
    def has_work(self) -> bool:
        """Whether rows wait to be run."""
        return bool(self._running_requests.waiting)

    def _build_batch(self) -> list[Work]:
        waiting = self._running_requests.waiting.values()
        ready = [sequence for sequence in waiting if self._backend.is_ready(sequence)]
        self.is_held = bool(waiting) and not ready
        picks = pick_step(
            ready,
            max_batch_tokens=self._limits.max_batch_tokens,
            min_prefill_tokens=self._limits.page_tokens,
            decode_cap=self._pace.most_decodes(),
            options=self._options,
            first_rows=self._pace.first_rows(),
        )
        for pick in sorted(picks, key=lambda pick: pick.sequence.arrival):
            self._make_room(pick)
        return [
            Work(
                sequence=pick.sequence,
                chunk=self._running_requests.take(pick.sequence, pick.n_tokens),
            )
            for pick in picks
            if pick.sequence.key in self._running_requests.by_key  # not preempted for an older one
        ]

    def _make_room(self, pick: Pick) -> None:
        """Pages for the rows of `pick`, if need be those of the youngest requests."""
        sequence = pick.sequence
        tokens = sequence.pending[0].position + pick.n_tokens
        while sequence.key in self._running_requests.by_key:
            youngest = self._admission.grow(sequence, tokens=tokens)
            if youngest is None:
                return
            self._preempt(youngest)

    def _preempt(self, sequence: Sequence) -> None:
        self._counters.preemptions += 1
        self._duties.give_up([sequence], Reason.PREEMPTED)

    def _run(self, step: list[Work]) -> "_Ran | None":
        """What came of it; None: it failed, and its requests were given up."""
        rows = sum(work.chunk.n_tokens for work in step)
        self._process.on_step(rows)
        began_s, delay_s = self._clock(), self._counters.delay_s()
        begun = self._try(step, partial(self._backend.begin, step))
        if begun is not None and self._backend.runs_beside:
            self._admit_beside()
            self._process.on_step(rows)  # messages were taken since it said so
        result = None if begun is None else self._try(step, begun)
        if result is None:
            return None
        if (speed := self._process.relative_speed) < 1:
            own_s = self._clock() - began_s - (self._counters.delay_s() - delay_s)
            self._process.sleep(max(0.0, own_s) * (1 / speed - 1))
        self._counters.delayed(since_s=delay_s)
        return _Ran(result=result, began_s=began_s, ended_s=self._clock())

    def _try(self, step: list[Work], act: Callable[[], T]) -> T | None:
        """None: it failed, and the requests of `step` were given up."""
        try:
            return act()
        except Exception:  # of a model's code or its device: the other requests go on
            logger.exception("a step of %d requests failed", len(step))
            self._duties.give_up((work.sequence for work in step), Reason.STAGE_ERROR)
            return None

    def _send_rows_and_tokens(self, step: list[Work], ran: "_Ran") -> None:
        """Other processes wait for theirs: they get it before the step is counted here."""
        for work in step:
            if work.sequence.key in self._running_requests.by_key:
                self._admission.publish(work.sequence)
        rule, result = self._options.messages, ran.result
        own = self._send(rows_messages(step, result.rows, dtype=self._shape.dtype, rule=rule))
        for index, reason in result.failed.items():
            self._duties.give_up([step[index].sequence], reason)
        own += self._send(
            sampled_messages(
                step, result.drawn, max_context_tokens=self._limits.max_context_tokens, rule=rule
            )
        )
        self._counters.ran(step, busy_s=ran.ended_s - ran.began_s)
        self._pace.ran(step, began_s=ran.began_s, ended_s=ran.ended_s)
        for message in own:
            self._accept(message, sender=self._name)

    def _send(self, messages: list[Outgoing]) -> list[Message]:
        """Returns those that are for this stage itself."""
        own = []
        for outgoing in messages:
            if outgoing.peer == self._name:
                own.append(outgoing.message)
                continue
            try:
                self._transport.send(outgoing.peer, outgoing.message)
            except (SendError, FrameError) as error:
                logger.error("cannot send to %s: %s", outgoing.peer, error)
                message = outgoing.message
                self._duties.end(message.entries, Reason.STAGE_ERROR, generation=message.generation)
        return own

    def _accept(self, message: Message, *, sender: str, unseen_s: float = 0.0) -> None:
        now_s = self._clock()
        self._pages_moved = True
        if is_coordinator(sender):
            self._coordinators.hear(sender)
            if message.measure is not None:
                self._measure(message.measure)
                return
            if message.kind == Kind.RETIRE:
                if self._duties.retire(message, sender=sender):
                    self._report_soon()
                return
            if message.kind == Kind.RELEASE:
                self._duties.tell_spans(message.entries, heard_s=now_s, unseen_s=unseen_s)
        self._duties.refuse(
            self._intake.accept(message, sender=sender, now_s=now_s, unseen_s=unseen_s)
        )
        self._pace.came(message, now_s=now_s)

    def _measure(self, order: MeasureOrder) -> None:
        try:
            if not self._process.measure(order):
                logger.info("the link to %s is in use; it is not measured now", order.peer)
        except SendError as error:
            logger.warning("measured no link: %s", error)

    def _tidy_up(self) -> None:
        self._intake.end_orphans(silent_since_s=self._clock() - ORPHAN_AFTER_S)
        if self._pages_moved and not self.has_work:
            self._pages_moved = False
            self.check_pages()
