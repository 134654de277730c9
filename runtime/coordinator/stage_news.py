"""Acts on what stages report and their heartbeats show, and leaves nodes free.

A process may serve several generations: what happens to it concerns every plan it is in.

Nodes are to be left free that helixweb wants drained, or whose stage is asked to end. New requests
go around such a node at once, as far as there is a way around. What runs through it ends there, or
goes on by another way, from prompt and tokens: after `migrate_after_s` if the node is to be
drained, as soon as there is room if its stage is about to end. That one is asked to forget its
generations when nothing runs through it any more, and ends then.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from runtime.coordinator.plans import Plans
from runtime.coordinator.serving import Serving
from runtime.coordinator.tracing import Tracer
from runtime.protocol.control import DrainProgress
from runtime.protocol.data import Message
from runtime.transport.heartbeats import PeerEvent

# A stage that leaves says so several times a second; silent for so long it has ended.
LEAVES_WITHIN_S = 5.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leaving:
    """A stage that is about to end; `said_s` last, `life` of its process."""

    said_s: float
    life: int | None


@dataclass(slots=True, kw_only=True, eq=False)
class Draining:
    """Owns which nodes are to be left free; the dispatcher calls it.

    Which nodes are to be left free, and how far that is.
    """

    plans: Plans
    # when what runs through a node to be drained moves
    _move_at: dict[str, float] = field(init=False, default_factory=dict)
    _leaving: dict[str, _Leaving] = field(init=False, default_factory=dict)

    def wish(self, nodes: Collection[str]) -> None:
        """These are to be drained, and no others; those that were and are not take requests."""
        due = self.plans.clock() + self.plans.migrate_after_s
        before, self._move_at = (
            self._move_at,
            {node: self._move_at.get(node, due) for node in sorted(nodes)},
        )
        if before.keys() != self._move_at.keys():
            logger.info("nodes to be drained: %s", ", ".join(self._move_at) or "none")
            self._tell_plans()

    @property
    def wished(self) -> Collection[str]:
        """The nodes that are to be drained."""
        return self._move_at.keys()

    def introduce(self, plan: Serving) -> None:
        """Tell a plan that was not there before which nodes it is to do without."""
        plan.draining = self._nodes

    def hear_leaving(self, node: str, message: Message) -> None:
        """The stage of `node`, which serves the message's generation, ends soon."""
        generation, life = message.generation, message.life
        if self.plans.of(generation) is None:  # which is not served any more, or not known
            self.plans.link.retire([node], generation=generation, life=life)
            return
        is_news = node not in self._leaving
        self._leaving[node] = _Leaving(said_s=self.plans.clock(), life=life)
        if is_news:
            logger.info("the stage of %r is about to end", node)
            self._tell_plans()
        self.look()

    def look(self) -> None:
        """Take the steps that are due; call it about once a second."""
        now = self.plans.clock()
        ended = [
            node
            for node, leaving in self._leaving.items()
            if now - leaving.said_s > LEAVES_WITHIN_S
        ]
        for node in ended:
            del self._leaving[node]
        if ended:
            self._tell_plans()
        due = {node for node, at in self._move_at.items() if now >= at}
        for node in sorted(due | self._leaving.keys()):
            self._move_what_runs(node)
        for node, leaving in self._leaving.items():
            if not self.plans.admission.running_through(node):
                self._let_go(node, life=leaving.life)

    def progress(self) -> dict[str, DrainProgress]:
        """Of every node that is to be drained."""
        return {
            node: DrainProgress(
                requests=len(self.plans.admission.running_through(node)),
                needed=any(
                    node not in plan.spared_nodes()
                    for plan in self.plans.with_node(node)
                    if plan is not self.plans.leaving
                ),
            )
            for node in self._move_at
        }

    @property
    def _nodes(self) -> frozenset[str]:
        return frozenset(self._move_at.keys() | self._leaving.keys())

    def _tell_plans(self) -> None:
        for plan in self.plans.present:
            self.introduce(plan)
        self.plans.admission.let_in()

    def _move_what_runs(self, node: str) -> None:
        """What has another way; the rest stays as long as the stage does."""
        self.plans.recovery.move_where_room(
            request
            for request in self.plans.admission.running_through(node)
            if node not in request.next_serving.nodes or node in request.next_serving.spared_nodes()
        )

    def _let_go(self, node: str, *, life: int | None) -> None:
        """Its process, that is: another may be there by the time that this is read."""
        for plan in self.plans.with_node(node):
            if node in plan.spared_nodes():
                self.plans.link.retire([node], generation=plan.generation, life=life)


@dataclass(slots=True, kw_only=True, eq=False)
class StageNews:
    """Acts on STATUS messages and heartbeats of stages; the dispatcher calls it.

    Keeps up what plans know of their stages, and has requests restart or go on.

    `on_change` is called when a stage of a plan was lost or came back.
    """

    plans: Plans
    tracer: Tracer
    on_change: Callable[[], None]
    # the last of every peer
    _peer_events: dict[str, PeerEvent] = field(init=False, default_factory=dict)

    def introduce(self, plan: Serving) -> None:
        """Tell a plan that was not there before what is known of its nodes."""
        peers = {peer.name for peer in self.plans.peers}
        self._peer_events = {
            node: news for node, news in self._peer_events.items() if node in peers
        }
        for peer_event in self._peer_events.values():
            plan.see(peer_event)

    def hear_status(self, sender: str, message: Message) -> None:
        """A stage serves the message's generation, with so much room."""
        status = message.status
        plan = self.plans.of(message.generation)
        if status is None:
            return
        if plan is None:
            self.plans.hear_unknown(sender, message.generation)
            return
        was_silent, was_shared = sender in plan.silent_nodes(), plan.shares(sender)
        was_restarted = plan.is_restarted(sender, status)
        wrong = plan.hear(sender, status)
        if wrong is not None:
            self.plans.link.complain(wrong)
            return
        gone_from = [plan] if was_restarted else []
        gone_from += [
            other
            for other in self.plans.present
            if other is not plan and other.notice_restart(sender, status)
        ]
        for each in gone_from:
            each.hear_lost_links(sender, ())  # what its life before could not reach
            self.tracer.forget_clock(sender)
            self.plans.recovery.lose_node(sender, "was restarted", plan=each)
        if was_silent and sender not in plan.silent_nodes():
            self._come_up(sender, plan)
        elif was_shared or plan.shares(sender):
            self.plans.admission.let_in()  # others may have given pages back
        self.plans.look()

    def hear_lost_links(self, sender: str, message: Message) -> None:
        """Requests that need a link that is cut restart around it, or wait for it."""
        for plan in self.plans.with_node(sender):
            before = plan.cut
            cut = plan.hear_lost_links(sender, message.lost_links or ())
            if cut:
                self.plans.recovery.lose_links(cut)
            elif plan.cut != before:
                logger.info("%r reaches again whom it sends to", sender)
                self.plans.admission.let_in()

    def see(self, peer_event: PeerEvent) -> None:
        """News of a process: at once its requests go on elsewhere, or it is used again."""
        node = peer_event.peer
        self._peer_events[node] = peer_event
        plans = self.plans.with_node(node)
        silent = [plan for plan in plans if node in plan.silent_nodes()]
        for plan in plans:
            plan.see(peer_event)
        if plans and peer_event.loss is not None:
            logger.warning(
                "lost the stage of %r: %s; heard %.3f s before",
                node,
                peer_event.loss,
                peer_event.silent_s,
            )
        if plans:
            self.on_change()
        if len(silent) < len(plans) and peer_event.loss is not None:
            self.plans.recovery.lose_node(node, f"is lost, {peer_event.loss}")
        for plan in silent:
            if node not in plan.silent_nodes():
                self._come_up(node, plan)
        self.plans.look()

    def _come_up(self, node: str, plan: Serving) -> None:
        if plan is self.plans.coming:  # nothing runs or waits under it yet
            logger.info("stage of %r is there in generation %d", node, plan.generation)
        else:
            self.plans.recovery.come_up(node, plan)
        self.on_change()
