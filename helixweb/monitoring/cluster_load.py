"""Current load of a cluster's nodes and links: the input of `bottleneck.py`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Speeds are compared of nodes that compute at least this much of the time.
LOADED = 0.3
# Of its steps: a node that waits for a core all the time is taken to run at least this share.
LEAST_RUNNING = 0.05
# Prompts that wait for a link longer than this to begin their way over it.
QUEUED_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLoad:
    """A node of the placement. Ratios 0 to 1, tokens/s of prompt and output; None: not known.

    `capacity_tokens_per_s` is what the plan takes it to be capable of, `kv_promised_ratio` what
    the coordinator counts on requests to need, of all its pages. `expected_busy_ratio` is the
    share of the time that its steps should have taken by its profile, `delayed_ratio` the share
    that they were ready and waited for a core of `host`, its machine ("": not known).
    """

    name: str
    capacity_tokens_per_s: float
    busy_ratio: float | None
    tokens_per_s: float | None
    kv_used_ratio: float | None
    kv_promised_ratio: float | None
    expected_busy_ratio: float | None = None
    delayed_ratio: float = 0.0
    host: str = ""

    @property
    def speed(self) -> float | None:
        """Expected time of its work ÷ measured time; None while it does little, or if unknown.

        Without times of its steps it uses its capacity, which is right for large batches.
        """
        if self.busy_ratio is None or self.busy_ratio < LOADED:
            return None
        if self.expected_busy_ratio is not None:
            return self.expected_busy_ratio / self.busy_ratio or None
        if not self.tokens_per_s or self.capacity_tokens_per_s <= 0:
            return None
        return self.tokens_per_s / self.capacity_tokens_per_s / self.busy_ratio

    @property
    def waiting_ratio(self) -> float:
        """The share of its steps that it was ready and waited for a core."""
        return min(1.0, self.delayed_ratio / self.busy_ratio) if self.busy_ratio else 0.0

    @property
    def own_speed(self) -> float | None:
        """Its speed without the time it waits."""
        running = max(1 - self.waiting_ratio, LEAST_RUNNING)
        return None if self.speed is None else self.speed / running


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLoad:
    """A link that the plan uses, as its sender measures it; tokens/s at the plan's mix.

    `planned_tokens_per_s` is what the plan sends over it, `carries_tokens_per_s` what it can carry
    at the measured rate. `queue_s`: time to send what waits for it at that rate. `slow`: it was
    full at clearly less than the plan assumes. `follows`: requests are routed by that rate.
    `seen_full`: it was busy enough to know its maximum.
    """

    name: str
    measured_bytes_per_s: float
    counted_bytes_per_s: float
    planned_tokens_per_s: float
    carries_tokens_per_s: float
    queue_s: float
    slow: bool
    stalled: bool
    follows: bool
    seen_full: bool = True

    @property
    def limits(self) -> bool:
        """Whether it holds requests up now, or would at the planned load."""
        return self.queue_s >= QUEUED_S or (
            self.slow and self.carries_tokens_per_s < self.planned_tokens_per_s
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A cluster now. `transfer_ratios`: share of requests' time spent on each link, by its name."""

    nodes: Sequence[NodeLoad]
    running: int
    waiting: int
    transfer_ratios: Mapping[str, float]
    links: Sequence[LinkLoad] = ()
