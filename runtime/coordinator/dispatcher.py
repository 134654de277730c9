"""Queue, route, send, and follow every request; the only user of the data transport.

Runs in one event loop and never awaits: `submit` and `receive` change state and send frames, the
answering tasks wait on their own `LiveRequest`. Whatever ends a request goes through `end`, which
gives back its KV estimate, tells every stage of its path to forget it, and lets the next one in.
"""

import logging
from collections.abc import Callable, Iterable, Sequence

from planner.routers.base import RequestSize
from planner.routers.waiting import kept_for
from runtime.coordinator.live_request import LiveRequest
from runtime.coordinator.refusals import NACKS, NeverFits, NotServing, QueueFull
from runtime.coordinator.request_stats import RequestStats
from runtime.coordinator.routing import Routing
from runtime.coordinator.serving import Serving, links_of
from runtime.coordinator.stage_link import Sender, StageLink
from runtime.coordinator.text_stream import Detokenizer, StopStrings
from runtime.coordinator.tracing import Tracer
from runtime.coordinator.waiting_line import WaitingLine
from runtime.protocol.control import ServingPlan
from runtime.protocol.data import Entry, Flag, FrameError, Kind, Message, Reason, Sampling
from runtime.protocol.lost_links import unpack_lost_links
from runtime.protocol.openai_answers import FinishReason
from runtime.protocol.sampled import SampledToken, unpack_sampled
from runtime.transport.base import Received
from runtime.transport.pulse import Sighting

NO_PLAN = "no plan is deployed; deploy one in the web interface"
_FINISH: dict[Reason, FinishReason] = {Reason.STOP: "stop", Reason.LENGTH: "length"}
_MOST_EPOCHS = 50  # a request that is refused this often is not refused for a passing reason
# Refusals of a stage that was restarted or is about to be: time helps, asking at once does not.
_PASSING = frozenset({Reason.UNKNOWN_REQUEST, Reason.WRONG_GENERATION})
logger = logging.getLogger(__name__)


class Dispatcher:
    """All live requests of one coordinator. `serving` is None while there is no plan."""

    def __init__(
        self,
        *,
        transport: Sender,
        stats: RequestStats,
        clock: Callable[[], float],
        new_request_id: Callable[[], int],
        request_timeout_s: float,
        tracer: Tracer | None = None,
    ) -> None:
        """`tracer` gets every request that ends; None: nothing is traced."""
        self._tracer = tracer
        self._link = StageLink(transport=transport, clock=clock)
        self._stats = stats
        self._clock = clock
        self._new_request_id = new_request_id
        self._request_timeout_s = request_timeout_s
        self._running: dict[int, LiveRequest] = {}
        self._waiting = WaitingLine()
        self.serving: Serving | None = None
        self._why_none = NO_PLAN
        self._try_at_tick = False
        self._sightings: dict[str, Sighting] = {}  # the last of every peer

    @property
    def requests_running(self) -> int:
        return len(self._running)

    @property
    def requests_waiting(self) -> int:
        return len(self._waiting)

    @property
    def nodes_in_use(self) -> set[str]:
        """Nodes that a request runs on now."""
        return {
            stage.node
            for request in self._running.values()
            if request.pipeline is not None
            for stage in request.pipeline.stages
        }

    def silent_nodes(self) -> list[str]:
        """Nodes of the plan that are not heard of; none without a plan."""
        if self.serving is None:
            return []
        return sorted(self.serving.silent_nodes(now=self._clock()))

    def losses(self) -> dict[str, str]:
        """How those nodes of the plan that are lost were found to be, in words."""
        return {} if self.serving is None else {**self.serving.losses()}

    def serve(self, serving: Serving | None, *, why_none: str = NO_PLAN) -> None:
        """Serve another plan, or none, and then say why to whoever asks.

        The plan before's requests go on under one of the same checkpoint, from prompt and tokens
        so far, as soon as its stages are up; without such a plan they end with an error. Its
        router's load is carried over.
        """
        goes_on = serving is not None and serving.continues(self.serving)
        for request in [*self._waiting, *self._running.values()]:
            if not goes_on:
                self._fail(
                    request,
                    "the plan was replaced while the request ran; try again",
                    code="plan_replaced",
                )
        if serving is not None and self.serving is not None:
            serving.router.take_over(self.serving.router)
            self._move(serving)
        self.serving = serving
        if serving is not None:
            self._sightings = {
                node: news for node, news in self._sightings.items() if node in serving.nodes
            }
            for sighting in self._sightings.values():
                serving.see(sighting)
        self._why_none = why_none
        self._link.forget_complaints()

    def _move(self, serving: Serving) -> None:
        """All requests to another plan: running ones in front, in the order they came."""
        running = sorted(self._running.values(), key=lambda request: request.arrived_at)
        for request in running:
            self._leave_path(request)
            request.begin_anew(now=self._clock())
        for request in reversed(running):
            self._waiting.add_front(request)
        for request in self._waiting:
            request.serving = serving

    def reweigh(self, plan: ServingPlan, *, routing: Routing) -> None:
        """Route by the weights of `plan` from now on; requests that run stay where they are.

        Raises InvalidPlacement; then nothing has changed.
        """
        if self.serving is not None:
            self.serving.reweigh(plan, routing=routing)
            self._let_in()

    def stop(self) -> None:
        """The process ends: every request is told, every stage forgets."""
        self.serving = None
        for request in [*self._waiting, *self._running.values()]:
            self._fail(request, "the coordinator is stopping; try again", code="stopping")

    def ready_serving(self) -> Serving:
        """The plan, once every stage has reported. Raises NotServing naming who is missing."""
        if self.serving is None:
            raise NotServing(self._why_none)
        missing = self.serving.missing_nodes()
        if missing:
            raise NotServing(f"waiting for the stages of: {', '.join(missing)}")
        return self.serving

    def submit(
        self,
        serving: Serving,
        *,
        prompt_ids: Sequence[int],
        sampling: Sampling,
        stop_strings: Sequence[str],
        owner: str = "",
        priority: int = 0,
    ) -> LiveRequest:
        """Route a request or let it wait its turn; the caller must `end` it.

        `serving` is what the prompt was tokenised for, `owner` who shares fairly with others, and
        a lower `priority` goes first. Raises NotServing, NeverFits, QueueFull; then nothing was
        kept.
        """
        if serving is not self.ready_serving():
            raise NotServing("the plan was replaced while the request was read; try again")
        size = RequestSize(
            prompt_tokens=len(prompt_ids),
            predicted_output_tokens=serving.output_length.predict(max_tokens=sampling.max_tokens),
        )
        if not serving.router.can_ever_serve(size):
            raise NeverFits(
                f"{size.prompt_tokens} prompt tokens and about {size.predicted_output_tokens} "
                "output tokens need more KV cache than any pipeline of this cluster has; shorten "
                "the prompt or lower max_tokens"
            )
        now = self._clock()
        request = LiveRequest(
            id=self._new_request_id(),
            serving=serving,
            prompt_ids=tuple(prompt_ids),
            sampling=sampling,
            size=size,
            detokenizer=Detokenizer(serving.tokenizer.decode),
            stop_strings=StopStrings(stop_strings),
            arrived_at=now,
            progressed_at=now,
            queued_at=now,
            owner=owner,
            priority=priority,
        )
        turn = self._waiting.turn_of(request)
        if self._route(request, kept=_kept_for_all(self._waiting.before(turn))):
            self._waiting.pass_by(request, turn)
        elif self._waiting.has_place(owner, most=serving.plan.max_queued_requests):
            self._waiting.add(request, turn)
        else:
            self._stats.rejected()
            raise QueueFull(
                waiting=len(self._waiting),
                own=self._waiting.waiting_of(owner),
                retry_after_s=self._stats.retry_after_s(waiting=len(self._waiting)),
            )
        self._stats.arrived()
        return request

    def end(self, request: LiveRequest) -> None:
        """Forget `request` everywhere and let others in; may be called again."""
        if request.ended:
            return
        request.ended = True
        traced = self._tracer is not None and self._tracer.ended(request)
        if request.id in self._running:
            self._leave_path(request, traced=traced)
        else:
            self._waiting.remove(request)
        self._let_in()

    def receive(self, received: Received) -> None:
        """Act on one message of a stage; what does not fit is dropped, and logged once."""
        message = received.message
        if message.kind == Kind.STATUS and message.status is not None:
            self._on_status(received.sender, message)
        elif message.kind == Kind.SAMPLED:
            self._on_sampled(received.sender, message)
        elif message.kind == Kind.TRACE:
            self._on_trace(received.sender, message)
        elif message.kind == Kind.LOST_LINKS:
            self._on_lost_links(received.sender, message)
        elif message.kind == Kind.NACK:
            for entry in message.entries:
                self._on_nack(received.sender, entry)
        else:
            self._link.complain(
                f"{received.sender!r} sent a {message.kind.name} to the coordinator"
            )

    def see(self, sighting: Sighting) -> None:
        """Act on news of a process: at once its requests go on elsewhere, or it is used again."""
        node, now = sighting.peer, self._clock()
        self._sightings[node] = sighting
        serving = self.serving
        if serving is None or node not in serving.nodes:
            return
        was_silent = node in serving.silent_nodes(now=now)
        serving.see(sighting)
        if sighting.loss is not None:
            logger.warning(
                "lost the stage of %r: %s; heard %.3f s before",
                node,
                sighting.loss,
                sighting.silent_s,
            )
        if not was_silent and sighting.loss is not None:
            self._recover(node, f"is lost, {sighting.loss}")
        elif was_silent and node not in serving.silent_nodes(now=now):
            self._came_up(node)

    def expire(self) -> None:
        """End what has made no progress for the request timeout; call it about once a second.

        Requests through a stage that has fallen silent go on elsewhere, or wait for it.
        """
        if self._tracer is not None:
            self._tracer.expire()
        if self.serving is not None:
            for node in self.serving.newly_silent(now=self._clock()):
                self._recover(node, "fell silent")
        if self._try_at_tick:
            self._try_at_tick = False
            self._let_in()
        oldest = self._clock() - self._request_timeout_s
        for request in [*self._running.values(), *self._waiting]:
            if request.progressed_at < oldest:
                self._fail(
                    request,
                    f"no pipeline became free within {self._request_timeout_s:g} s; try again"
                    + self._silent_words()
                    if request.pipeline is None
                    else f"no token came for {self._request_timeout_s:g} s; a stage hangs or is "
                    "gone; try again",
                    code="timeout",
                )

    def _route(self, request: LiveRequest, *, kept: frozenset[str]) -> bool:
        """Choose a pipeline and send the prompt; False when none is free now.

        `kept` are nodes that requests before this one wait for.
        """
        serving = request.serving
        if serving.missing_nodes():
            return False  # else those of the plan before would all take the first way to be up
        now = self._clock()
        masked = serving.silent_nodes(now=now) | kept
        pipeline = serving.choose(request.size, masked=masked)
        if pipeline is None:
            return False
        serving.kv.admit(request.id, pipeline, size=request.size)
        if request.first_token_at is None:
            serving.load.admit(request.id, pipeline, size=request.size)
        else:
            serving.load.readmit(request.id, pipeline, size=request.size)
        request.follow(pipeline, now=now)
        self._running[request.id] = request
        self._stats.routed(pipeline, prompt_tokens=len(request.prompt_ids), queue_s=request.queue_s)
        self._link.send_prompt(request)
        return True

    def _let_in(self) -> None:
        """In the order of the line in every component, so that no large request starves."""
        kept: frozenset[str] = frozenset()
        for request in tuple(self._waiting):
            if kept.issuperset(request.serving.nodes):
                return
            if self._route(request, kept=kept):
                self._waiting.let_in(request)
            else:
                kept |= _kept_for(request)

    def _leave_path(self, request: LiveRequest, *, traced: bool = False) -> None:
        """No longer running: give back the KV estimate and tell the stages."""
        del self._running[request.id]
        request.serving.kv.release(request.id)
        request.serving.load.release(request.id, total_tokens=request.next_position)
        self._link.release(request, traced=traced)

    def _on_status(self, sender: str, message: Message) -> None:
        serving = self.serving
        if serving is None or message.status is None:
            return
        if message.generation != serving.plan.generation:
            return  # a stage of the plan before, on its way out
        now = self._clock()
        was_silent = sender in serving.silent_nodes(now=now)
        was_restarted = serving.is_restarted(sender, message.status)
        wrong = serving.hear(sender, message.status, now=now)
        if wrong is not None:
            self._link.complain(wrong)
            return
        if was_restarted:
            serving.hear_lost_links(sender, ())  # what its life before could not reach
            if self._tracer is not None:
                self._tracer.forget_clock(sender)
            self._recover(sender, "was restarted")
        if was_silent and sender not in serving.silent_nodes(now=now):
            self._came_up(sender)

    def _came_up(self, node: str) -> None:
        """A stage that was silent, or never heard, is there."""
        if self.serving is None:
            return
        logger.info("stage of %r is up in generation %d", node, self.serving.plan.generation)
        self._link.release_again(node)
        if not self.serving.missing_nodes():
            for request in list(self._waiting):
                self._end_if_too_large(request)
        self._let_in()

    def _recover(self, node: str, why: str) -> None:
        """The stage of `node` is gone, or has forgotten what ran through it: begin that anew."""
        lost = [
            request
            for request in self._running.values()
            if request.pipeline and any(stage.node == node for stage in request.pipeline.stages)
        ]
        if lost:
            logger.warning("the stage of %r %s; %d requests begin anew", node, why, len(lost))
        self._begin_anew(lost)

    def _on_lost_links(self, sender: str, message: Message) -> None:
        """Requests that need a link that is cut begin anew around it, or wait for it."""
        serving = self.serving
        if serving is None or message.generation != serving.plan.generation:
            return
        try:
            peers = unpack_lost_links(message)
        except FrameError as error:
            self._link.complain(f"message of {sender!r} dropped: {error}")
            return
        before = serving.cut
        cut = serving.hear_lost_links(sender, peers)
        if cut:
            lost = [
                request
                for request in self._running.values()
                if request.pipeline and cut & links_of(request.pipeline)
            ]
            words = ", ".join(f"{source} -> {target}" for source, target in sorted(cut))
            logger.warning("lost the link %s; %d requests begin anew", words, len(lost))
            self._begin_anew(lost)
        elif serving.cut != before:
            logger.info("%r reaches again whom it sends to", sender)
            self._let_in()

    def _begin_anew(self, lost: Sequence[LiveRequest]) -> None:
        """In front of what waits, in their order."""
        for request in reversed(lost):
            self._route_again(request)
        self._let_in()

    def _silent_words(self) -> str:
        """Which stages are missing, for an error; empty when none is."""
        silent = self.silent_nodes()
        return f" (no word from the stages of {', '.join(silent)})" if silent else ""

    def _on_sampled(self, sender: str, message: Message) -> None:
        try:
            sampled = unpack_sampled(message)
        except FrameError as error:
            self._link.complain(f"message of {sender!r} dropped: {error}")
            return
        for token in sampled:
            entry = token.entry
            request = self._running.get(entry.request)
            if request is None:
                if self.serving is not None:
                    self._link.release_stray(self.serving, sender, entry)
            elif entry.epoch == request.epoch:
                self._on_token(sender, request, token)

    def _on_trace(self, sender: str, message: Message) -> None:
        if self._tracer is None:
            return
        try:
            self._tracer.hear(sender, message)
        except FrameError as error:
            self._link.complain(f"message of {sender!r} dropped: {error}")

    def _on_token(self, sender: str, request: LiveRequest, token: SampledToken) -> None:
        pipeline, entry, token_id = request.pipeline, token.entry, token.token_id
        if pipeline is None or sender != pipeline.stages[-1].node:
            self._link.complain(
                f"{sender!r} sampled a token of a request whose last stage it is not"
            )
            return
        if entry.position < request.next_position:
            return  # a duplicate
        if entry.position > request.next_position or not (
            0 <= token_id < request.serving.tokenizer.vocabulary_size
        ):
            self._fail(
                request,
                f"node {sender!r} sent token {token_id} at position {entry.position} where "
                f"position {request.next_position} and an id below "
                f"{request.serving.tokenizer.vocabulary_size} were expected; try again",
                code="token_stream_broken",
            )
            return
        now = self._clock()
        if request.first_token_at is None:
            request.first_token_at = now
            request.serving.load.first_token(request.id)
            self._stats.first_token(
                pipeline,
                prompt_tokens=len(request.prompt_ids),
                ttft_s=now - request.arrived_at,
            )
        else:
            self._stats.next_token(pipeline, gap_s=now - request.progressed_at)
        request.progressed_at = now
        finish = _FINISH.get(entry.reason, "stop") if Flag.FINISHED in entry.flags else None
        if request.accept(token_id, now=now, finish_reason=finish, logprobs=token.logprobs):
            request.serving.output_length.observe(len(request.token_ids))
            self._stats.finished(
                e2e_s=now - request.arrived_at,
                ttft_s=request.first_token_at - request.arrived_at,
                output_tokens=len(request.token_ids),
            )
            self.end(request)
        else:
            request.serving.kv.grow(request.id, total_tokens=request.next_position)

    def _on_nack(self, sender: str, entry: Entry) -> None:
        request = self._running.get(entry.request)
        if request is None or entry.epoch != request.epoch or request.pipeline is None:
            return
        if sender not in {stage.node for stage in request.pipeline.stages}:
            self._link.complain(f"{sender!r} refused a request that is not on its way through it")
            return
        if self._may_begin_anew(request, entry.reason):
            self._route_again(request)
            if entry.reason in _PASSING:
                self._try_at_tick = True
            elif not self._running or entry.reason == Reason.PREFIX_GONE:
                self._let_in()
            return
        code, words = NACKS.get(entry.reason, ("refused", "refused the request; try again"))
        self._fail(request, f"node {sender!r} {words}", code=code)

    def _may_begin_anew(self, request: LiveRequest, reason: Reason) -> bool:
        """Whether it lost only its place: prompt and tokens are known, so it can go on from them.

        For want of pages alone it is tried once, or while others run that will give theirs back.
        """
        if request.epoch >= _MOST_EPOCHS:
            return False
        if reason == Reason.NO_KV_PAGES:
            return request.epoch == 0 or len(self._running) > 1
        return reason in (Reason.PREEMPTED, Reason.PREFIX_GONE) or reason in _PASSING

    def _route_again(self, request: LiveRequest) -> None:
        """Let it wait in front of all others, for a new epoch.

        No waiting helps a request that has outgrown every pipeline: it ends here.
        """
        self._leave_path(request)
        request.begin_anew(now=self._clock())
        self._waiting.add_front(request)
        self._end_if_too_large(request)

    def _end_if_too_large(self, request: LiveRequest) -> None:
        can_ever_serve = request.serving.router.can_ever_serve
        if not can_ever_serve(request.size):
            request.predict_least()  # it may be about to end
        if not can_ever_serve(request.size):
            self._fail(
                request,
                f"its {request.next_position} tokens so far need more KV cache than any pipeline "
                "of this cluster has; shorten the prompt or lower max_tokens",
                code="kv_capacity_exceeded",
            )

    def _fail(self, request: LiveRequest, message: str, *, code: str) -> None:
        logger.warning("request %d failed: %s", request.id, message)
        self._stats.failed()
        request.fail(message, code=code)
        self.end(request)


def _kept_for_all(requests: Iterable[LiveRequest]) -> frozenset[str]:
    kept: frozenset[str] = frozenset()
    for request in requests:
        if kept.issuperset(request.serving.nodes):
            break
        kept |= _kept_for(request)
    return kept


def _kept_for(request: LiveRequest) -> frozenset[str]:
    serving = request.serving
    return kept_for(request.size, router=serving.router, placement=serving.plan.placement)
