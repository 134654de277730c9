"""One deployed plan as the coordinator uses it: router, KV estimate, and which stages are up."""

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from planner.domain.cluster import SINK, SOURCE
from planner.domain.pipeline import Pipeline
from planner.routers.base import Hop, LoadView, RequestSize, Router
from planner.routers.choice import RouterName, make_router
from planner.routers.kv_estimator import KvEstimator
from planner.routers.leading_past import leads_past
from planner.routers.node_load import NodeLoad
from planner.routers.output_length import OutputLengthEstimate
from runtime.coordinator.tokenizer import CheckpointTokenizer
from runtime.protocol.control import PeerAddress, ServingPlan
from runtime.protocol.data import StageStatus
from runtime.protocol.reach import cannot_reach
from runtime.transport.heartbeats import Loss, PeerEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """The router's name, and what it may need beside the plan."""

    name: RouterName
    rng: random.Random
    clock: Callable[[], float]

    def router_of(self, plan: ServingPlan, *, kv: KvEstimator, load: LoadView) -> Router:
        """Raises InvalidPlacement when weights and placement contradict each other."""
        return make_router(
            self.name,
            routing_weights=plan.routing_weights,
            placement=plan.placement,
            num_layers=plan.num_layers,
            partial_inference=plan.partial_inference,
            kv=kv,
            load=load,
            rng=self.rng,
        )


class Serving:
    """Owns a deployed plan's router, KV estimate and stage states; `Plans` holds up to three.

    A plan with everything that is forgotten when another plan replaces it.

    `followed_by` is the plan under which its requests go on once they have left their way.
    """

    def __init__(
        self,
        *,
        plan: ServingPlan,
        tokenizer: CheckpointTokenizer,
        routing: Routing,
        before: "Serving | None" = None,
    ) -> None:
        """`before` serves until this plan is up; if stages can hold both, the pages of each are in
        one book, as they are in one pool.

        Raises InvalidPlacement when weights and placement contradict each other.
        """
        self.plan = plan
        self.tokenizer = tokenizer
        self.nodes = tuple(sorted(plan.placement.layers))
        self.followed_by: Serving | None = None
        beside = before if before is not None and self.stands_beside(before) else None
        self.load: NodeLoad = beside.load if beside else NodeLoad(clock=routing.clock)
        self.kv: KvEstimator = (
            beside.kv
            if beside
            else KvEstimator(capacity_token_layers={}, page_tokens=plan.page_tokens)
        )
        self.kv.widen(self.nodes, high_water=plan.kv_high_water)
        self.router = routing.router_of(plan, kv=self.kv, load=self.load)
        self.output_length = OutputLengthEstimate(
            mean_output_tokens=plan.workload.mean_output_tokens
        )
        self._states: dict[str, StageStatus] = {}
        self._alive: set[str] = set()  # nodes that answer heartbeats
        self._lost: dict[str, Loss] = {}  # those that did, and do not now
        self._ended: set[str] = set()  # whose process ended; another has not reported yet
        self._crowded: set[str] = set()  # full of others' requests, when last heard of
        self.cut: frozenset[Hop] = frozenset()  # links that stages say they cannot send on
        self.draining: frozenset[str] = frozenset()  # nodes to do without, where it can
        # Asked for every request that waits, whenever one ends, by turns as if no node were silent
        # and without those that are; searches a graph per node.
        self._find_spared = lru_cache(maxsize=2)(self._search_spared)

    def continues(self, before: "Serving") -> bool:
        """Whether answers begun under `before` can go on: same model, same tokens."""
        return (self.plan.model_name, self.plan.checkpoint) == (
            before.plan.model_name,
            before.plan.checkpoint,
        )

    def goes_on_for(self, before: "Serving") -> bool:
        """Whether a request that was read and limited for `before` is right for this plan, too."""
        return (
            self.continues(before)
            and self.plan.max_context_tokens >= before.plan.max_context_tokens
        )

    def stands_beside(self, before: "Serving") -> bool:
        """Whether stages can serve both at once, out of the same pages."""
        return pages_of(self.plan) == pages_of(before.plan)

    @property
    def generation(self) -> int:
        return self.plan.generation

    @property
    def is_up(self) -> bool:
        """Whether every stage has reported for this generation, however long ago."""
        return not self.missing_nodes()

    def reweigh(self, plan: ServingPlan, *, routing: Routing) -> None:
        """Go on with the weights of `plan`, which differs in nothing else that routes.

        Raises InvalidPlacement when they contradict the placement; then nothing has changed.
        """
        router = routing.router_of(plan, kv=self.kv, load=self.load)
        router.take_over(self.router)
        self.plan, self.router = plan, router
        self._find_spared.cache_clear()

    def readdress(self, peers: tuple[PeerAddress, ...]) -> None:
        """Its stages are reached there from now on."""
        self.plan = self.plan.model_copy(update={"peers": peers})

    def hear(self, node: str, status: StageStatus) -> str | None:
        """Take a stage's STATUS. Returns what is wrong with it, None when it fits the plan."""
        held = self.plan.placement.layers.get(node)
        if held is None:
            return f"{node!r} reports as a stage but is not in the placement"
        if (status.first, status.end) != (held.first, held.end):
            return f"{node!r} runs layers [{status.first}, {status.end}), the plan says {held}"
        if status.page_tokens != self.plan.page_tokens:
            return (
                f"{node!r} has pages of {status.page_tokens} tokens, "
                f"the plan says {self.plan.page_tokens}"
            )
        self._states[node] = status
        self._ended.discard(node)
        self._crowded.discard(node)
        self.kv.set_capacity(node, token_layers=status.pages_total * status.page_tokens)
        self.kv.set_elsewhere(node, token_layers=status.pages_elsewhere * status.page_tokens)
        return None

    def shares(self, node: str) -> bool:
        """Whether requests of other coordinators hold pages there, or are next."""
        return node in self.nodes and self.kv.elsewhere_token_layers(node) > 0

    def avoid_crowded(self, node: str) -> None:
        """No request goes there before its next word of its room."""
        self._crowded.add(node)

    def see(self, peer_event: PeerEvent) -> None:
        """Take news of a process from its heartbeats."""
        node = peer_event.peer
        if node not in self.nodes:
            return
        if peer_event.loss is None:
            self._lost.pop(node, None)
            self._alive.add(node)
            return
        self._alive.discard(node)
        self._lost[node] = peer_event.loss
        if peer_event.loss is Loss.ENDED:
            self._ended.add(node)

    def hear_lost_links(self, node: str, peers: Collection[str]) -> frozenset[Hop]:
        """`node` cannot reach these, and can reach all others. Returns the links that are new."""
        before = self.cut
        others = {(source, target) for source, target in before if source != node}
        self.cut = frozenset(others | {(node, peer) for peer in peers if peer in self.nodes})
        return self.cut - before

    def choose(self, size: RequestSize, *, masked: Collection[str]) -> Pipeline | None:
        """The next request's pipeline, around `masked` nodes and cut links; None if none is free.

        Its last stage must reach its first as well, which gets every token from it.
        """
        for end in (-1, 0):  # which end of a pipeline that cannot close is avoided then
            avoided = set(masked)
            while True:
                pipeline = self.router.choose(size, masked=avoided, cut=self.cut)
                if pipeline is None:
                    break
                if not self.cut or _way_back(pipeline) not in self.cut:
                    return pipeline
                avoided.add(pipeline.stages[end].node)
        return None

    def is_restarted(self, node: str, status: StageStatus) -> bool:
        """Whether `status` is of another process than what `node` said before."""
        before = self._states.get(node)
        return before is not None and before.incarnation != status.incarnation

    def notice_restart(self, node: str, status: StageStatus) -> bool:
        """`status` is of another generation. Whether it shows, and this plan did not know, that the
        process which served this one is gone."""
        if node in self._ended or not self.is_restarted(node, status):
            return False
        self._ended.add(node)
        return True

    def missing_nodes(self) -> tuple[str, ...]:
        """Nodes of the placement whose stage never reported for this generation, and is needed."""
        missing = [node for node in self.nodes if node not in self._states]
        if missing and self.draining:
            spared = self._spared(frozenset())
            missing = [node for node in missing if node not in spared]
        return tuple(missing)

    def silent_nodes(self) -> frozenset[str]:
        """Nodes that requests avoid: their process answers no heartbeats, or has not reported."""
        up = self._alive.intersection(self._states) - self._ended
        return frozenset(self.nodes) - up

    def spared_nodes(self) -> frozenset[str]:
        """Those to be drained that requests can do without now, silent nodes left out, too."""
        return self._spared(self.silent_nodes())

    def avoided_nodes(self) -> frozenset[str]:
        """Nodes that no new request goes through."""
        silent = self.silent_nodes()
        return silent | self._spared(silent) | self._crowded

    def losses(self) -> dict[str, Loss]:
        """How those that are lost were found to be."""
        return dict(self._lost)

    def lost_nodes(self) -> dict[str, str]:
        """Nodes that have served this plan and do not now, and how that was noticed."""
        restarted = dict.fromkeys(self._ended, "its process was restarted")
        how = restarted | {node: str(loss) for node, loss in self._lost.items()}
        return {node: words for node, words in how.items() if node in self._states}

    def cut_words(self) -> str:
        """Which links between nodes that are there are cut, and what to do; empty when none is."""
        silent = self.silent_nodes()
        endpoints = {peer.name: peer.endpoint for peer in self.plan.peers}
        cut = sorted(hop for hop in self.cut if silent.isdisjoint(hop))
        return "; ".join(
            cannot_reach(source, target, endpoints[target])
            for source, target in cut
            if target in endpoints
        )

    def has_way(self) -> bool:
        """Whether a pipeline is left, around silent nodes and cut links."""
        weights, silent = self.plan.routing_weights, self.silent_nodes()
        return any(
            leads_past(
                silent,
                weights={**weights, SOURCE: {first: weight}},
                # a last stage must reach the first, which gets every token from it
                cut=self.cut | {(last, SINK) for last, peer in self.cut if peer == first},
            )
            for first, weight in weights[SOURCE].items()
        )

    def _spared(self, silent: frozenset[str]) -> frozenset[str]:
        return self._find_spared(self.draining.intersection(self.nodes), silent, self.cut)

    def _search_spared(
        self, draining: frozenset[str], silent: frozenset[str], cut: frozenset[Hop]
    ) -> frozenset[str]:
        """As many of `draining`, in the order of their names, as leave a way around all of them,
        `silent` nodes and `cut` hops."""
        spared: frozenset[str] = frozenset()
        for node in sorted(draining):
            if leads_past(silent | spared | {node}, weights=self.plan.routing_weights, cut=cut):
                spared |= {node}
        return spared


def pages_of(plan: ServingPlan) -> tuple[object, ...]:
    """Whose pages stages keep for a plan, and of what size."""
    return plan.model_name, plan.checkpoint, plan.num_layers, plan.page_tokens


def links_of(pipeline: Pipeline) -> frozenset[Hop]:
    """From which stage to which something is sent: rows onwards, tokens from the last to the
    first."""
    nodes = [stage.node for stage in pipeline.stages]
    return frozenset((*pairwise(nodes), _way_back(pipeline)))


def _way_back(pipeline: Pipeline) -> Hop:
    return pipeline.stages[-1].node, pipeline.stages[0].node
