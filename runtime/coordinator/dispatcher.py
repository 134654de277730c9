"""Takes requests in and follows what stages say of them; the only user of the data transport.

Runs in one event loop and never awaits: `submit` and `receive` change state and send frames, the
answering tasks wait on their own `LiveRequest`. `admission.py` decides which requests run,
wait and restart, `plans.py` how one plan follows another.
"""

import logging
import time
from collections.abc import Callable, Sequence
from heapq import nsmallest

from planner.routers.base import RequestSize
from runtime.coordinator.admission import Admission, Recovery
from runtime.coordinator.live_request import LiveRequest
from runtime.coordinator.plans import NO_PLAN, Plans
from runtime.coordinator.refusals import NeverFits, NotServing
from runtime.coordinator.request_life import Origin
from runtime.coordinator.request_stats import RequestStats
from runtime.coordinator.serving import Serving
from runtime.coordinator.stage_link import StageLink
from runtime.coordinator.stage_news import Draining, StageNews
from runtime.coordinator.text_stream import AnswerText
from runtime.coordinator.tracing import Tracer
from runtime.protocol.data import Flag, FrameError, Kind, Message, Reason, Sampling
from runtime.protocol.logs import REQUEST_ID
from runtime.protocol.openai_answers import FinishReason
from runtime.protocol.prefix_salts import prefix_salt
from runtime.protocol.sampled import SampledToken, unpack_sampled
from runtime.protocol.trace_context import TRACE
from runtime.transport.base import Received, Sender
from runtime.transport.heartbeats import PeerEvent

MIGRATE_AFTER_S = 30.0
_FINISH: dict[Reason, FinishReason] = {Reason.STOP: "stop", Reason.LENGTH: "length"}
logger = logging.getLogger(__name__)


class Dispatcher:
    """Owns the requests of one coordinator; its HTTP endpoints and its message loop call it.

    All live requests of one coordinator, and the `plans` they run under.
    """

    def __init__(
        self,
        *,
        transport: Sender,
        stats: RequestStats,
        clock: Callable[[], float],
        new_request_id: Callable[[], int],
        request_timeout_s: float,
        migrate_after_s: float = MIGRATE_AFTER_S,
        tracer: Tracer | None = None,
        on_stage_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`migrate_after_s` after a plan was followed by another beside it, or a node was to be
        drained, what still runs there goes on elsewhere. `tracer` gets every request that ends;
        None: nothing is traced. `on_stage_change` is called when a stage was lost or came back.
        """
        self.tracer = tracer or Tracer(traces_per_s=0.0, clock=clock, unix_time=time.time)
        self._link = StageLink(transport=transport, clock=clock)
        self.stats = stats
        self._clock = clock
        self._new_request_id = new_request_id
        self._request_timeout_s = request_timeout_s
        self._admission = Admission(link=self._link, stats=stats, clock=clock, tracer=self.tracer)
        self._recovery = Recovery(admission=self._admission, link=self._link, clock=clock)
        self.plans = Plans(
            admission=self._admission,
            recovery=self._recovery,
            link=self._link,
            clock=clock,
            migrate_after_s=migrate_after_s,
        )
        self.draining = Draining(plans=self.plans)
        self._news = StageNews(plans=self.plans, tracer=self.tracer, on_change=on_stage_change)

    @property
    def serving(self) -> Serving | None:
        """The plan that new requests are for; None while there is none."""
        return self.plans.serving

    @property
    def requests_running(self) -> int:
        return len(self._admission.running)

    @property
    def requests_waiting(self) -> int:
        return len(self._admission.waiting)

    def oldest_requests(self, most: int) -> list[LiveRequest]:
        """So many that are not over: those that wait longest, then those that run longest."""

        def arrived_at(request: LiveRequest) -> float:
            return request.arrived_at

        waiting = nsmallest(most, self._admission.waiting, key=arrived_at)
        running = self._admission.running.values()
        return waiting + nsmallest(most - len(waiting), running, key=arrived_at)

    @property
    def requests_leaving(self) -> int:
        """Those that still run under the plan before."""
        leaving = self.plans.leaving
        return 0 if leaving is None else len(self._admission.running_under(leaving))

    @property
    def nodes_in_use(self) -> set[str]:
        """Nodes that a request runs on now."""
        return self._admission.nodes_in_use

    def silent_nodes(self) -> list[str]:
        """Nodes of the plan that are not heard of and not drained; none without a plan."""
        if self.serving is None:
            return []
        return sorted(self.serving.silent_nodes() - self.serving.spared_nodes())

    def serve(
        self, serving: Serving | None, *, why_none: str = NO_PLAN, was_served: bool = False
    ) -> None:
        """Serve another plan, or none: see `Plans.serve`."""
        if serving is not None:
            self.draining.introduce(serving)
        self.plans.serve(serving, why_none=why_none, was_served=was_served)
        if serving is not None:
            self._news.introduce(serving)

    @property
    def is_paused(self) -> bool:
        return self._admission.paused

    def pause(self, *, paused: bool) -> None:
        """Let new requests wait while what runs goes on to its end, or let them in again."""
        if paused == self._admission.paused:
            return
        logger.info("new requests wait" if paused else "new requests are let in again")
        self._admission.paused = paused
        self._turn_away_paused()
        self._admission.let_in()

    def close(self) -> None:
        """The process is about to end: take no new requests, go on with those that are here, but
        for those that a pause keeps waiting."""
        self.plans.close()
        self._turn_away_paused()

    def _turn_away_paused(self) -> None:
        """End requests that a pause keeps waiting in a process that is about to end."""
        if not (self.is_paused and self.plans.is_closed):
            return
        for request in [*self._admission.waiting]:
            if not request.epoch:
                self._admission.fail(
                    request,
                    "the deployment is paused and its coordinator is stopping; try again later",
                    code="stopping",
                )

    @property
    def requests_here(self) -> int:
        """Those that run or wait."""
        return self.requests_running + self.requests_waiting

    def stop(self) -> None:
        """The process ends: every request is told, every stage forgets."""
        for request in [*self._admission.waiting, *self._admission.running.values()]:
            self._admission.fail(request, "the coordinator is stopping; try again", code="stopping")
        self.serve(None)

    def submit(
        self,
        serving: Serving,
        *,
        prompt_ids: Sequence[int],
        sampling: Sampling,
        stop_strings: Sequence[str],
        owner: str = "",
        cache_salt: str = "",
        priority: int = 0,
        shows_markers: bool = False,
    ) -> LiveRequest:
        """Route a request or let it wait its turn; the caller must `end` it.

        `serving` is what the prompt was tokenised for; it may have been followed since. `owner` is
        who shares fairly with others, `cache_salt` divides its prefix cache, and a lower `priority`
        goes first. `shows_markers`: the text has the tokens that divide a message. Raises
        NotServing, NeverFits, QueueFull; then nothing was kept.
        """
        asked, serving = serving, self.plans.open()
        if not (serving is asked or serving.goes_on_for(asked)):
            raise NotServing("the plan was replaced while the request was read; try again")
        size = RequestSize(
            prompt_tokens=len(prompt_ids),
            predicted_output_tokens=serving.output_length.predict(max_tokens=sampling.max_tokens),
        )
        if serving.is_up and not serving.router.can_ever_serve(size):
            raise NeverFits(
                f"{size.prompt_tokens} prompt tokens and about {size.predicted_output_tokens} "
                "output tokens need more KV cache than any pipeline of this cluster has; shorten "
                "the prompt or lower max_tokens"
            )
        now = self._clock()
        tokenizer = serving.tokenizer
        request = LiveRequest(
            self._new_request_id(),
            serving=serving,
            prompt_ids=prompt_ids,
            sampling=sampling,
            size=size,
            text=AnswerText(
                tokenizer.decode_marked if shows_markers else tokenizer.decode, stop_strings
            ),
            arrived_at=now,
            origin=Origin(
                owner=owner,
                prefix_salt=prefix_salt(owner, cache_salt),
                priority=priority,
                asked_as=REQUEST_ID.get(),
                context=TRACE.get(),
            ),
        )
        self._admission.take(request)
        return request

    def end(self, request: LiveRequest) -> None:
        """Forget `request` everywhere and let others in; may be called again."""
        self._admission.end(request)

    def receive(self, received: Received) -> None:
        """Act on one message of a stage; what does not fit is dropped, and logged once."""
        message = received.message
        if message.kind == Kind.STATUS and message.status is not None:
            self._news.hear_status(received.sender, message)
        elif message.kind == Kind.SAMPLED:
            self._on_sampled(received.sender, message)
        elif message.kind == Kind.TRACE:
            self._on_trace(received.sender, message)
        elif message.kind == Kind.LOST_LINKS:
            self._news.hear_lost_links(received.sender, message)
        elif message.kind == Kind.LEAVING:
            self.draining.hear_leaving(received.sender, message)
        elif message.kind == Kind.NACK:
            for entry in message.entries:
                self._recovery.refuse(received.sender, entry)
        else:
            self._link.complain(
                f"{received.sender!r} sent a {message.kind.name} to the coordinator"
            )

    def see(self, peer_event: PeerEvent) -> None:
        """Act on news of a process: at once its requests go on elsewhere, or it is used again."""
        self._news.see(peer_event)

    def expire(self) -> None:
        """End what has made no progress for the request timeout; call it about once a second.

        Requests of a plan that was to have gone by now go on under the one that serves.
        """
        self.tracer.expire()
        self._recovery.tick()
        self.plans.look()
        self.draining.look()
        oldest = self._clock() - self._request_timeout_s
        for request in [*self._admission.running.values(), *self._admission.waiting]:
            if request.progressed_at < oldest:
                if self.is_paused and request.pipeline is None and not request.epoch:
                    self._admission.fail(request, self._paused_words(), code="paused")
                    continue
                self._admission.fail(
                    request,
                    f"no pipeline became free within {self._request_timeout_s:g} s; try again"
                    + self._silent_words()
                    if request.pipeline is None
                    else f"no token came for {self._request_timeout_s:g} s; a stage hangs or is "
                    "gone; try again",
                    code="timeout",
                )

    def _paused_words(self) -> str:
        return (
            "the deployment is paused and was not resumed within "
            f"{self._request_timeout_s:g} s; try again later"
        )

    def _silent_words(self) -> str:
        """Which stages are missing and which links cut, for an error; empty when none is."""
        silent = self.silent_nodes()
        words = [f"no word from the stages of {', '.join(silent)}"] if silent else []
        if self.serving is not None and (cut := self.serving.cut_words()):
            words.append(cut)
        return f" ({'; '.join(words)})" if words else ""

    def _on_sampled(self, sender: str, message: Message) -> None:
        try:
            sampled = unpack_sampled(message)
        except FrameError as error:
            self._link.complain(f"message of {sender!r} dropped: {error}")
            return
        for token in sampled:
            entry = token.entry
            request = self._admission.running.get(entry.request)
            if request is None:
                plan = self.plans.of(message.generation) or self.serving
                if plan is not None:
                    self._link.release_stray(plan, sender, entry)
            elif entry.epoch == request.epoch:
                self._on_token(sender, request, token)

    def _on_trace(self, sender: str, message: Message) -> None:
        try:
            self.tracer.hear(sender, message)
        except FrameError as error:
            self._link.complain(f"message of {sender!r} dropped: {error}")

    def _on_token(self, sender: str, request: LiveRequest, token: SampledToken) -> None:
        pipeline, entry, token_id = request.pipeline, token.entry, token.token_id
        if pipeline is None or sender != pipeline.stages[-1].node:
            self._link.complain(
                f"{sender!r} sampled a token of a request whose last stage it is not"
            )
            return
        expected = request.next_position
        if entry.position < expected:
            return  # a duplicate
        is_late = entry.position > expected
        if is_late and self._recovery.miss_tokens(request):
            return
        if is_late or not 0 <= token_id < request.serving.tokenizer.vocabulary_size:
            self._admission.fail(
                request,
                f"node {sender!r} sent token {token_id} at position {entry.position} where "
                f"position {expected} and an id below "
                f"{request.serving.tokenizer.vocabulary_size} were expected; try again",
                code="token_stream_broken",
            )
            return
        now = self._clock()
        if not request.token_times:
            request.serving.load.first_token(request.id)
        self.stats.token(request, now_s=now)
        finish = _FINISH.get(entry.reason, "stop") if Flag.FINISHED in entry.flags else None
        if request.accept(token_id, finish_reason=finish, logprobs=token.logprobs):
            request.serving.output_length.observe(len(request.token_ids))
            self.stats.finished(request, now_s=now)
            self._admission.end(request)
        else:
            request.serving.kv.grow(request.id, total_tokens=expected + 1)
