"""Logits with what requests change in them before a token is drawn: penalties, biases, grammars.

Legend: B rows, G of them with a grammar, E entries (row, token), M bytes of a mask, V vocabulary.
"""

from collections.abc import Callable
from collections.abc import Sequence as Items

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runtime.engine.host_memory import Parcel
from runtime.engine.sampled_row import SampledRow

_BITS_OF_BYTES = np.unpackbits(
    np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little"
).astype(bool)


Change = Callable[[Tensor], None]


def prepare_changes(rows: Items[SampledRow], vocab_size: int, parcel: Parcel) -> list[Change]:
    """What writes the penalties, then the biases of `rows`, then what their grammars forbid, to
    logits [B, V] of the rows, once what they add to `parcel` is sent.

    The repetition penalty divides logits above 0 and multiplies those below, for tokens of prompt
    or answer. Presence is then subtracted once, frequency as often as the token was sampled.
    """
    if not any(row.is_adjusted for row in rows):
        return []
    changes = (
        _penalties(rows, vocab_size, parcel),
        _biases(rows, vocab_size, parcel),
        _masks(rows, parcel),
    )
    return [change for change in changes if change is not None]


def _penalties(rows: Items[SampledRow], vocab_size: int, parcel: Parcel) -> Change | None:
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
        return None
    entries_E, is_known_E = _entries(ids, vocab_size)
    where_E = parcel.add(entries_E)
    factors_E = parcel.add(np.concatenate(factors)[is_known_E])
    subtracted_E = parcel.add(np.concatenate(subtracted)[is_known_E].astype(np.float32))

    def penalise(choices_BV: Tensor) -> None:
        flat = choices_BV.view(-1)
        found_E = flat[where_E()]
        found_E = torch.where(found_E > 0, found_E / factors_E(), found_E * factors_E())
        flat[where_E()] = found_E - subtracted_E()

    return penalise


def _biases(rows: Items[SampledRow], vocab_size: int, parcel: Parcel) -> Change | None:
    biased = [(place, row.sampling.logit_bias) for place, row in enumerate(rows)]
    ids = [(place, np.array([each[0] for each in bias], np.int64)) for place, bias in biased]
    entries_E, is_known_E = _entries(ids, vocab_size)
    if not len(entries_E):
        return None
    where_E = parcel.add(entries_E)
    biases = np.array([each[1] for _, bias in biased for each in bias], np.float32)
    biases_E = parcel.add(biases[is_known_E])

    def bias(choices_BV: Tensor) -> None:
        choices_BV.view(-1).index_add_(0, where_E(), biases_E())

    return bias


def _masks(rows: Items[SampledRow], parcel: Parcel) -> Change | None:
    masks = [(place, row.allowed) for place, row in enumerate(rows)]
    held = [(place, allowed) for place, allowed in masks if allowed is not None]
    if not held:
        return None
    where_G = parcel.add(np.array([place for place, _ in held]))
    bytes_GM = parcel.add(np.stack([allowed for _, allowed in held]))
    bits_of_bytes = parcel.add(_BITS_OF_BYTES)

    def forbid(choices_BV: Tensor) -> None:
        bits = bits_of_bytes()[bytes_GM().to(torch.int64)]
        is_allowed_GV = bits.view(len(held), -1)[:, : choices_BV.shape[-1]]
        choices_BV[where_G()] = choices_BV[where_G()].masked_fill(~is_allowed_GV, -torch.inf)

    return forbid


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
