"""Whether a first stage waits for more decodes before a step, where stages share cores.

Only there: later stages get the batch as it was formed, one message per step.
"""

import math
from collections.abc import Iterable

from runtime.engine.sequence import Sequence

# A request that has been away for longer than that many times the usual is not waited for.
_OVERDUE = 2.0


def gathering_s(
    sequences: Iterable[Sequence],
    *,
    steps_at_once: float,
    most_decodes: int,
    away_s: float,
    now_s: float,
) -> float:
    """Seconds that the next step waits for decodes to join it, unless more come; 0: begin now.

    A step waits until its share of the decoding requests is here, all of them for `steps_at_once`
    1 and at most `most_decodes`, but no longer than `away_s`, the time requests are usually away,
    from when the first one came; and for none that should have been back. A prompt, or rows of a
    request that entered elsewhere, wait for nothing.
    """
    here = 0
    first_came_s = now_s
    latest_back_s = now_s
    away = 0
    for sequence in sequences:
        if sequence.pending:
            if sequence.is_prefilling or not sequence.is_first_stage:
                return 0.0
            here += 1
            first_came_s = min(first_came_s, sequence.heard_s)
        elif sequence.is_awaited and sequence.left_s is not None:
            back_s = sequence.left_s + _OVERDUE * away_s
            if back_s > now_s:
                away += 1
                latest_back_s = max(latest_back_s, back_s)
    if not here or here >= min(most_decodes, math.ceil((here + away) / steps_at_once)):
        return 0.0
    return max(0.0, min(first_came_s + away_s, latest_back_s) - now_s)
