"""Logits with what requests change in them before a token is drawn: penalties, biases, grammars.

Legend: B rows, G of them with a grammar, E entries (row, token), M bytes of a mask, V vocabulary.
"""

from collections.abc import Sequence as Items

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runtime.engine.host_memory import HostMemory
from runtime.engine.sampled_row import SampledRow

_BITS_OF_BYTES = np.unpackbits(
    np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little"
).astype(bool)


def adjusted(logits_BV: Tensor, rows: Items[SampledRow], memory: HostMemory) -> Tensor:
    """`logits_BV` with the penalties, then the biases of `rows`, then only what grammars allow.

    The repetition penalty divides logits above 0 and multiplies those below, for tokens of prompt
    or answer. Presence is then subtracted once, frequency as often as the token was sampled. A new
    tensor, on the same device, unless no row has any of these.
    """
    if not any(row.is_adjusted for row in rows):
        return logits_BV
    choices_BV = logits_BV.clone()
    _penalise(choices_BV, rows, memory)
    _bias(choices_BV, rows, memory)
    _forbid(choices_BV, rows, memory)
    return choices_BV


def _penalise(choices_BV: Tensor, rows: Items[SampledRow], memory: HostMemory) -> None:
    ids, factors, subtracted = [], [], []
    for place, row in enumerate(rows):
        if row.history is not None:
            sampling, counts = row.sampling, row.history.counts
            ids.append((place, row.history.ids))
            factors.append(np.full(len(counts), sampling.repetition_penalty, np.float32))
            subtracted.append(
                sampling.presence_penalty * (counts > 0) + sampling.frequency_penalty * counts
            )
    if not ids:
        return
    entries_E, is_known_E = _entries(ids, choices_BV.shape[-1])
    flat, where_E = choices_BV.view(-1), memory.send(entries_E)
    factors_E = memory.send(np.concatenate(factors)[is_known_E])
    found_E = flat[where_E]
    found_E = torch.where(found_E > 0, found_E / factors_E, found_E * factors_E)
    subtracted_E = np.concatenate(subtracted)[is_known_E].astype(np.float32)
    flat[where_E] = found_E - memory.send(subtracted_E)


def _bias(choices_BV: Tensor, rows: Items[SampledRow], memory: HostMemory) -> None:
    biased = [(place, row.sampling.logit_bias) for place, row in enumerate(rows)]
    ids = [(place, np.array([each[0] for each in bias], np.int64)) for place, bias in biased]
    entries_E, is_known_E = _entries(ids, choices_BV.shape[-1])
    if len(entries_E):
        biases_E = np.array([each[1] for _, bias in biased for each in bias], np.float32)
        choices_BV.view(-1).index_add_(0, memory.send(entries_E), memory.send(biases_E[is_known_E]))


def _forbid(choices_BV: Tensor, rows: Items[SampledRow], memory: HostMemory) -> None:
    masks = [(place, row.allowed) for place, row in enumerate(rows)]
    held = [(place, allowed) for place, allowed in masks if allowed is not None]
    if not held:
        return
    where_G = memory.send(np.array([place for place, _ in held]))
    bytes_GM = memory.send(np.stack([allowed for _, allowed in held]))
    bits = memory.send(_BITS_OF_BYTES)[bytes_GM.to(torch.int64)]
    is_allowed_GV = bits.view(len(held), -1)[:, : choices_BV.shape[-1]]
    choices_BV[where_G] = choices_BV[where_G].masked_fill(~is_allowed_GV, -torch.inf)


def _entries(
    ids: Items[tuple[int, NDArray[np.int64]]], vocab_size: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Where the ids of rows are in the flattened logits, and which ids are in the vocabulary.

    The others are left out: they would be tokens of the next row.
    """
    ids_E = np.concatenate([each for _, each in ids])
    rows_E = np.repeat([place for place, _ in ids], [len(each) for _, each in ids])
    is_known_E = ids_E < vocab_size
    return (rows_E * vocab_size + ids_E)[is_known_E], is_known_E
