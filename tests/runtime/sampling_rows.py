"""Rows of logits and how they are sampled, for the tests of sampling."""

from collections.abc import Sequence

import torch
from torch import Tensor

from runtime.engine.backend import Drawn
from runtime.engine.host_memory import host_memory
from runtime.engine.sampled_row import SampledRow, TokenHistory
from runtime.engine.sampling_batch import SamplingBatch
from runtime.protocol.data import Sampling

PLAIN = Sampling(temperature=1.0, top_p=1.0, top_k=0, seed=1, max_tokens=1)
MEMORY = host_memory(torch.device("cpu"))


def sampled_row(sampling: Sampling, *, position: int = 0) -> SampledRow:
    """As a stage makes it."""
    history = TokenHistory(sampling) if sampling.has_penalties else None
    return SampledRow(sampling=sampling, position=position, history=history)


def picks_of(logits_RV: Tensor, rows: Sequence[SampledRow]) -> list[Drawn]:
    """Of rows that each leave a token to draw."""
    picks = SamplingBatch(rows).sample(logits_RV, MEMORY)
    return [pick for pick in picks if pick is not None]


def draws(logits_V: Tensor, sampling: Sampling, *, count: int) -> list[int]:
    """The tokens of `count` positions that all have the same logits."""
    rows = [sampled_row(sampling, position=position) for position in range(count)]
    return [pick.token_id for pick in picks_of(logits_V.expand(count, -1), rows)]
