"""Input and output types of a simulation engine.

Nodes are numbered from 0, the coordinator is the number after the last; so are links and requests.
"""

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

NEVER = 2**62

# Of the runtime's moving averages: the weight of one observation, and what of its own step a
# request's cycle has beside the time that it is seen away (runtime/engine/decode_cap.py).
AVERAGE_WEIGHT = 0.05
OWN_STEPS = 0.5

# In place of the number of the link that returns a token from the last stage to the first.
VIA_COORDINATOR = -1
SAME_NODE = -2

# Gaps between tokens are counted in buckets of 1/64 of a power of two, 1 to 1.6 % wide.
SUB_BUCKETS = 64
LEAST_EXPONENT = -20
NUM_BUCKETS = 40 * SUB_BUCKETS


def bucket_of(seconds: float) -> int:
    """The bucket that counts a duration; exact, as the C does it."""
    if seconds <= 0.0:
        return 0
    mantissa, exponent = math.frexp(seconds)
    position = (exponent - LEAST_EXPONENT) * SUB_BUCKETS
    position += int((mantissa - 0.5) * (2 * SUB_BUCKETS))
    return min(max(position, 0), NUM_BUCKETS - 1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepTimes:
    """Seconds of one layer by whole tokens, entry 0 being 0; beyond the last by the slope."""

    seconds: Floats
    slope_s: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeSetup:
    """A node that holds layers, cut into segments wherever requests may enter.

    `segment_layers` are the layers of each segment. A step takes at most `prompt_limit` prompts
    and `decode_limit` decodes; fewer than `least_decodes` take as long, and one of prompts and
    decodes takes `shared_s` a layer less than both. Of its `pages` each holds one layer of one
    request. That it has given a request up is known at the coordinator `refusal_s` later.
    """

    segment_layers: tuple[int, ...]
    prompt: StepTimes
    decode: StepTimes
    prompt_limit: int
    decode_limit: int
    pages: int
    refusal_s: float
    least_decodes: int
    shared_s: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EngineSetup:
    """Nodes, bandwidths that links share, and the policy in the order of the C struct `Policy`.

    With `decodes_first` decodes overtake prompts on links. 0 means none for `chunk_tokens`,
    `cap_divisor` and `most_micro_batches`. `measures_waits` of requests at their stages, which
    costs time.
    """

    chunk_tokens: int
    cap_divisor: float
    most_micro_batches: float
    cap_floor: int
    grouped: bool
    decodes_first: bool
    piece_bytes: float
    page_tokens: int
    measures_waits: bool
    overhead_s: float
    copy_s_per_token: float
    activation_bytes: float
    token_bytes: float
    nodes: tuple[NodeSetup, ...]
    shared_bytes_per_s: tuple[float, ...]


class StageVisit(NamedTuple):
    """A request's stage: where it enters, how many layers it runs, the link it comes by."""

    node: int
    segment: int
    layers: int
    link: int


class OccurrenceKind(IntEnum):
    """Why an engine stops."""

    FIRST_TOKEN = 1
    FINISHED = 2
    OUTGROWN = 3
    PREEMPTED = 4


class Occurrence(NamedTuple):
    """An event for admission. `tokens` is the current length of the sequence.

    PREEMPTED: a node had no pages for the request, or took them for an older one. Its number is
    reserved until it has restarted and finished, or was given up.
    """

    kind: OccurrenceKind
    request: int
    tokens: int
    time_s: float
    first_token_s: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeStatistics:
    """Statistics by node since they began; integrals are over seconds.

    Sums over steps: of the decodes, of their square, of them times the resident requests. KV is
    that of the pages held, in token-layers. Fields are in the order of the C struct.
    """

    busy_s: Floats
    steps: Counts
    decode_steps: Counts
    decodes: Counts
    decodes_squared: Counts
    decodes_resident: Counts
    prompt_tokens: Counts
    resident_integral: Floats
    waiting_integral: Floats
    kv_integral: Floats
    kv_peak: Counts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinkStatistics:
    """Statistics by link since they began; `bytes` are those of messages that were sent whole."""

    bytes: Floats
    busy_s: Floats
    waiting_integral: Floats
    waiting_peak: Counts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EngineStatistics:
    """Everything counted since the statistics began, but `events`, counted from the start."""

    seconds: float
    events: int
    output_tokens: int
    first_tokens: int
    prompt_tokens: int
    finished: int
    preempted: int
    running_integral: float
    gaps: Counts
    nodes: NodeStatistics
    links: LinkStatistics
