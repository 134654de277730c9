"""The sustained decode throughput of a component: the largest that its requests in flight allow.

At X decode tokens/s and r = X / O requests/s, node i, which a share p_i of requests visits, is
busy with prompt steps for u_i = p_i r n m_i of the time (n steps a prompt, m_i seconds each).
Decodes come in cycles: c_i = time of a step of d_i decodes / (1 - u_i) with d_i = p_i X c_i. A
visit takes some cycles, what is left of a running prompt step, and where prompts run whole, what
the whole convoy waits for (`Model`'s weights). A message waits on a link for decodes before it and
for a prompt's piece, or for whole prompts where these are not overtaken; of bandwidth that links
share it has what the others leave. A token's way back from the last stage to the first takes
`Load.return_s`. Then

    X* = largest X with X round_trip(X) + r ttft(X) <= N

where N requests fill the KV room of the scarcest group of nodes; what a full node cannot take
is sent to its group's others, until all of the scarcest group are full. A step takes one chunk, so
chunks queue where steps are long; the longest such wait delays first tokens. Two things follow
from an answer and change it, so it is worked out in a few turns: how much longer requests stay
that go by a slow node of a group, and the cap of batches that stages measure.

Where a node alone holds its layers, requests gather: small batches catch up with large ones and
join them, until a step takes no more. So N / M requests step as one, with M micro-batches (fewer
where some stage has several nodes, or messages need longer than steps), and a visit takes one step
of these at least. Chains of 40 to 80 single nodes serve a half to nine tenths of what they would
serve with c_i and d_i.
"""

from typing import NamedTuple

import numpy as np

from planner.estimate.load import Load, Tables
from planner.estimate.model import Model
from planner.native import POINTER, REAL, REALS, function


class Sustained(NamedTuple):
    """Result for one component; all 0 if nothing can be served within the limits.

    `held` is the number of requests in flight. `round_trip_s` is the time per output token.
    """

    decode_tokens_per_s: float
    held: float
    round_trip_s: float
    ttft_s: float


def sustained(model: Model, load: Load, tables: Tables) -> Sustained:
    nodes, edges = len(load.share_N), len(load.share_E)
    work, result = np.empty(6 * nodes + edges), np.empty(4)
    _sustained(model.as_array(), load.packed(tables), 0.0, work, result)
    return Sustained(*result.tolist())


_sustained = function("sustained", None, REALS, POINTER, REAL, REALS, REALS)
