"""Acts on what stages report, and on what the heartbeats of their processes show.

A process may serve several generations: what happens to it concerns every plan it is in.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from runtime.coordinator.admission import Admission
from runtime.coordinator.plans import Plans
from runtime.coordinator.recovery import Recovery
from runtime.coordinator.serving import Serving
from runtime.coordinator.stage_link import StageLink
from runtime.coordinator.tracing import Tracer
from runtime.protocol.data import Message
from runtime.protocol.frame_error import FrameError
from runtime.protocol.lost_links import unpack_lost_links
from runtime.transport.heartbeats import PeerEvent

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class StageNews:
    """Acts on STATUS messages and heartbeats of stages; the dispatcher calls it.

    Keeps up what plans know of their stages, and has requests restart or go on.

    `on_change` is called when a stage of a plan was lost or came back.
    """

    plans: Plans
    admission: Admission
    recovery: Recovery
    link: StageLink
    tracer: Tracer | None
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
            self.link.complain(wrong)
            return
        gone_from = [plan] if was_restarted else []
        gone_from += [
            other
            for other in self.plans.present
            if other is not plan and other.notice_restart(sender, status)
        ]
        for each in gone_from:
            each.hear_lost_links(sender, ())  # what its life before could not reach
            if self.tracer is not None:
                self.tracer.forget_clock(sender)
            self.recovery.lose_node(sender, "was restarted", plan=each)
        if was_silent and sender not in plan.silent_nodes():
            self._come_up(sender, plan)
        elif was_shared or plan.shares(sender):
            self.admission.let_in()  # others may have given pages back
        self.plans.look()

    def hear_lost_links(self, sender: str, message: Message) -> None:
        """Requests that need a link that is cut restart around it, or wait for it."""
        try:
            peers = unpack_lost_links(message)
        except FrameError as error:
            self.link.complain(f"message of {sender!r} dropped: {error}")
            return
        for plan in self.plans.with_node(sender):
            before = plan.cut
            cut = plan.hear_lost_links(sender, peers)
            if cut:
                self.recovery.lose_links(cut)
            elif plan.cut != before:
                logger.info("%r reaches again whom it sends to", sender)
                self.admission.let_in()

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
            self.recovery.lose_node(node, f"is lost, {peer_event.loss}")
        for plan in silent:
            if node not in plan.silent_nodes():
                self._come_up(node, plan)
        self.plans.look()

    def _come_up(self, node: str, plan: Serving) -> None:
        if plan is self.plans.coming:  # nothing runs or waits under it yet
            logger.info("stage of %r is there in generation %d", node, plan.generation)
        else:
            self.recovery.come_up(node, plan)
        self.on_change()
