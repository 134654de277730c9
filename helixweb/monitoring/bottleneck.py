"""What limits a cluster now, in words. Decides from numbers alone."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

# A node that computes this much of the time has no more to give.
SATURATED = 0.85
# Below this share of the speed that the plan gives it, next to the others', a node is slow.
SLOW = 0.65
# It holds the others up if it computes this much, and about as much as the busiest: a request's
# stages take turns, so that with few requests none of them computes all the time.
HOLDS_UP = 0.6
ABOUT_AS_BUSY = 0.15
# Speeds are compared of nodes that compute at least this much of the time.
LOADED = 0.3
# Pages in use; and what the coordinator has promised, which it keeps below the high-water mark.
KV_USED = 0.9
KV_PROMISED = 0.85
# The same while requests wait: the next one does not fit, though the last one that ended left room.
KV_PROMISED_AND_WAITED_FOR = 0.75
# Of the time of requests; where nodes have time to spare.
UNDER_WAY = 0.4


class Limit(StrEnum):
    """What kind of thing limits."""

    SILENT_NODE = "silent node"
    SLOW_NODE = "slow node"
    KV_CACHE = "KV cache"
    COMPUTE = "compute"
    LINK = "link"
    ADMISSION = "admission"
    NOTHING = "nothing"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLoad:
    """A node of the placement. Ratios 0 to 1, tokens/s of prompt and output; None: not known.

    `capacity_tokens_per_s` is what the plan takes it to be capable of, `kv_promised_ratio` what
    the coordinator counts on requests to need, of all its pages. `expected_busy_ratio` is the
    share of the time that its steps should have taken by its profile.
    """

    name: str
    capacity_tokens_per_s: float
    busy_ratio: float | None
    tokens_per_s: float | None
    kv_used_ratio: float | None
    kv_promised_ratio: float | None
    expected_busy_ratio: float | None = None

    @property
    def speed(self) -> float | None:
        """What its work should take ÷ what it takes; None while it does little, or not known.

        Without times of its steps, by what it is capable of: right where batches are large.
        """
        if self.busy_ratio is None or self.busy_ratio < LOADED:
            return None
        if self.expected_busy_ratio is not None:
            return self.expected_busy_ratio / self.busy_ratio or None
        if not self.tokens_per_s or self.capacity_tokens_per_s <= 0:
            return None
        return self.tokens_per_s / self.capacity_tokens_per_s / self.busy_ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A cluster now. `transfer_ratios`: share of requests' time spent on each link, by its name."""

    nodes: Sequence[NodeLoad]
    running: int
    waiting: int
    transfer_ratios: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`subject` is the node or link at fault, empty if none is; the rest are sentences."""

    limit: Limit
    subject: str
    headline: str
    evidence: str
    advice: str


def bottleneck(load: Load) -> Finding:
    """The first that holds, from what stands in the way of all else to what merely is busiest."""
    heard = [node for node in load.nodes if node.busy_ratio is not None]
    if not heard:
        return Finding(
            limit=Limit.UNKNOWN,
            subject="",
            headline="No node is reporting, so nothing is known of what limits.",
            evidence="",
            advice="Check that the agents run and reach this site.",
        )
    return (
        _silent(load)
        or _slow(load, heard)
        or _kv(load, heard)
        or _compute(load, heard)
        or _link(load)
        or _admission(load)
        or _nothing(load, heard)
    )


def _silent(load: Load) -> Finding | None:
    silent = [node.name for node in load.nodes if node.busy_ratio is None]
    if not silent:
        return None
    return Finding(
        limit=Limit.SILENT_NODE,
        subject=silent[0],
        headline=f"{_named(silent)} not reporting; requests avoid what is not heard of.",
        evidence=f"{len(silent)} of {len(load.nodes)} nodes are silent.",
        advice="See the node's page for its last message; plan without it if it stays away.",
    )


def _slow(load: Load, heard: Sequence[NodeLoad]) -> Finding | None:
    """A node that holds the others up because it is slower than the plan takes it to be."""
    speeds = {node.name: speed for node in heard if (speed := node.speed) is not None}
    least = max(HOLDS_UP, _busy(_busiest(heard)) - ABOUT_AS_BUSY)
    busy = [node for node in heard if node.name in speeds and _busy(node) >= least]
    if not busy or len(speeds) == 1:
        return None
    slowest = min(busy, key=lambda node: speeds[node.name])
    others = [speed for name, speed in speeds.items() if name != slowest.name]
    ratio = speeds[slowest.name] / statistics.median(others)
    if ratio >= SLOW:
        return None
    return Finding(
        limit=Limit.SLOW_NODE,
        subject=slowest.name,
        headline=f"{slowest.name} is slow: it runs at {ratio:.0%} of the speed the plan gives it.",
        evidence=f"It computes {_busy(slowest):.0%} of the time; next to the other nodes' its "
        f"tokens take {1 / ratio:.1f} times as long as its profile says.{_queue(load)}",
        advice="Look for other work, heat or throttling on that machine; else profile it anew and "
        "replan, so that it gets fewer layers or less flow.",
    )


def _kv(load: Load, heard: Sequence[NodeLoad]) -> Finding | None:
    """Room for requests, not speed, keeps others out."""
    fullest = max(heard, key=lambda node: _fullness(node, waiting=load.waiting))
    if _fullness(fullest, waiting=load.waiting) < 1:
        return None
    used, promised = fullest.kv_used_ratio, fullest.kv_promised_ratio
    shares = [
        f"{used:.0%} of its pages are in use" if used is not None else "",
        f"requests that run may need {promised:.0%} of them" if promised is not None else "",
    ]
    busiest = _busiest(heard)
    spare = (
        f" {busiest.name} computes {_busy(busiest):.0%} of the time, so more room alone would "
        "bring little."
        if _busy(busiest) >= SATURATED
        else f" Computing is not what limits: the busiest node does {_busy(busiest):.0%} of the "
        "time."
    )
    return Finding(
        limit=Limit.KV_CACHE,
        subject=fullest.name,
        headline=f"The KV cache of {fullest.name} is nearly full.",
        evidence=f"There, {' and '.join(share for share in shares if share)}.{_queue(load)}{spare}",
        advice="Give it fewer layers, so that more memory is left for pages, or add a node; "
        "shorter prompts and answers need less.",
    )


def _compute(load: Load, heard: Sequence[NodeLoad]) -> Finding | None:
    busiest = _busiest(heard)
    if _busy(busiest) < SATURATED:
        return None
    others = [_busy(node) for node in heard if node.name != busiest.name]
    rest = f" The others do {statistics.mean(others):.0%} on average." if others else ""
    return Finding(
        limit=Limit.COMPUTE,
        subject=busiest.name,
        headline=f"Computing on {busiest.name} limits.",
        evidence=f"It computes {_busy(busiest):.0%} of the time.{rest}{_queue(load)}",
        advice="The plan's page says what a faster node or one more would bring.",
    )


def _link(load: Load) -> Finding | None:
    if not load.transfer_ratios:
        return None
    name, share = max(load.transfer_ratios.items(), key=lambda item: item[1])
    if share < UNDER_WAY:
        return None
    return Finding(
        limit=Limit.LINK,
        subject=name,
        headline=f"The link {name} limits: requests spend {share:.0%} of their time on it.",
        evidence="Nodes have time to spare." + _queue(load),
        advice="A plan that crosses it less often is faster; see the network's page for what was "
        "measured of it.",
    )


def _admission(load: Load) -> Finding | None:
    if load.waiting == 0:
        return None
    return Finding(
        limit=Limit.ADMISSION,
        subject="",
        headline=f"{_requests(load.waiting)} for a pipeline, though no node is full or busy.",
        evidence="A pipeline is free for a request when all of its nodes have room for it.",
        advice="A request that needs much room lets none pass it; long prompts need most.",
    )


def _nothing(load: Load, heard: Sequence[NodeLoad]) -> Finding:
    busiest = _busiest(heard)
    fullest = max((node.kv_used_ratio or 0.0 for node in heard), default=0.0)
    return Finding(
        limit=Limit.NOTHING,
        subject="",
        headline="Nothing limits at this load." if load.running else "Idle: no request runs.",
        evidence=f"The busiest node, {busiest.name}, computes {_busy(busiest):.0%} of the time, "
        f"the fullest KV cache is {fullest:.0%} full, and nobody waits.",
        advice="",
    )


def _busiest(heard: Sequence[NodeLoad]) -> NodeLoad:
    return max(heard, key=_busy)


def _busy(node: NodeLoad) -> float:
    return node.busy_ratio or 0.0


def _fullness(node: NodeLoad, *, waiting: int) -> float:
    """1 or more: full."""
    most = KV_PROMISED_AND_WAITED_FOR if waiting else KV_PROMISED
    return max((node.kv_used_ratio or 0.0) / KV_USED, (node.kv_promised_ratio or 0.0) / most)


def _queue(load: Load) -> str:
    return f" {_requests(load.waiting)}." if load.waiting else ""


def _requests(number: int) -> str:
    return "One request waits" if number == 1 else f"{number} requests wait"


def _named(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"{names[0]} is"
    shown = ", ".join(names[:3])
    return f"{shown} are" if len(names) <= 3 else f"{shown} and {len(names) - 3} more are"
