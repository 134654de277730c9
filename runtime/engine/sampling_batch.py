"""How the rows of a step are sampled: what the requests ask for, as tensors beside the logits.

Legend: R rows of logits, B rows of a block, V vocabulary, K alternatives, C columns of what was
picked.
"""

import itertools
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runtime.engine.adjusted_logits import Change, prepare_changes
from runtime.engine.backend import Drawn
from runtime.engine.host_memory import HostMemory, Parcel, Sent
from runtime.engine.noise import mixed
from runtime.engine.sampled_row import SampledRow
from runtime.engine.sampler import DrawParameters, draw, logprobs_of, spread_ids
from runtime.protocol.sampled import Logprobs

# Logits that are drawn from at once: on a CPU about a row, which stays in its caches; elsewhere
# enough to keep the device busy. Each takes about 50 bytes of temporary memory.
_BLOCK_LOGITS_CPU = 1 << 17
_BLOCK_LOGITS = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """Rows that are sampled in the same way and at once, at `where` in the logits.

    What of it is on the device is there once its parcel is sent. Greedy rows have no `parameters`.
    """

    rows: list[SampledRow]
    where: slice | Sent
    changes: list[Change]
    parameters: Callable[[], DrawParameters] | None


class SamplingBatch:
    """The rows of one step and how each is sampled.

    A row's token does not depend on the other rows or on its place among them.
    """

    def __init__(self, rows: Items[SampledRow], *, block_logits: int | None = None) -> None:
        """`block_logits`: how many logits are sampled from at once; None: what suits the device."""
        self._rows = rows
        self._block_logits = block_logits
        counts = [row.sampling.logprobs for row in rows if row.sampling.logprobs is not None]
        self._alternatives = max(counts, default=None)

    def sample(self, logits_RV: Tensor, memory: HostMemory) -> list[Drawn | None]:
        """A token for each row of `logits_RV`, float32, which stays as it is; None where the logits
        left nothing to draw from.

        Waits for the device once, for all rows together; `memory` is that of its device.
        """
        return self.start(logits_RV, memory)()

    def start(self, logits_RV: Tensor, memory: HostMemory) -> Callable[[], list[Drawn | None]]:
        """As `sample`; what it returns waits when it is called."""
        picked = memory.start_to_host(self.pick(logits_RV, memory))
        return lambda: [
            self._read(row, picked_C)
            for row, picked_C in zip(self._rows, picked().numpy(), strict=True)
        ]

    def pick(self, logits_RV: Tensor, memory: HostMemory) -> Tensor:
        """What `sample` returns, as int32 [R, C] on the device, by one copy and no wait for it.

        Columns: token id; 1 if it is valid; where logprobs are asked for, the ids of the token and
        of the K most likely ones, and then the bits of their logprobs.
        """
        vocab_size = logits_RV.shape[-1]
        columns = 2
        if self._alternatives is not None:
            columns += 2 * (1 + min(self._alternatives, vocab_size))
        parcel = memory.parcel()
        blocks = [
            self._block(places, vocab_size, parcel) for places in self._blocks_of_rows(logits_RV)
        ]
        parcel.send()
        picked_RC = logits_RV.new_zeros(len(logits_RV), columns, dtype=torch.int32)
        is_random = not all(row.is_greedy for row in self._rows)
        id_bits_V = spread_ids(vocab_size, logits_RV.device) if is_random else None
        for block in blocks:
            where = block.where if isinstance(block.where, slice) else block.where()
            found_BC = self._pick_block(block, logits_RV[where], id_bits_V)
            picked_RC[where, : found_BC.shape[1]] = found_BC
        return picked_RC

    def _blocks_of_rows(self, logits_RV: Tensor) -> Iterator[list[int]]:
        """Places of rows that are sampled in the same way, as many as are sampled at once."""
        vocab_size = logits_RV.shape[-1]
        suitable = _BLOCK_LOGITS_CPU if logits_RV.device.type == "cpu" else _BLOCK_LOGITS
        most = max(1, (self._block_logits or suitable) // vocab_size)

        def way(place: int) -> tuple[bool, ...]:
            row, sampling = self._rows[place], self._rows[place].sampling
            limits = (_has_top_k(row, vocab_size), sampling.top_p < 1)
            return (row.is_adjusted, sampling.logprobs is not None, row.is_greedy, *limits)

        for _, group in itertools.groupby(sorted(range(len(self._rows)), key=way), key=way):
            places = list(group)
            row = self._rows[places[0]]
            is_plain = row.is_greedy and not row.is_adjusted and row.sampling.logprobs is None
            # of all rows only the largest logits: that takes no temporary memory
            at_once = len(places) if is_plain and len(places) == len(self._rows) else most
            for start in range(0, len(places), at_once):
                yield places[start : start + at_once]

    def _block(self, places: list[int], vocab_size: int, parcel: Parcel) -> "_Block":
        """The rows at `places`, and in `parcel` how they are sampled."""
        rows = [self._rows[place] for place in places]
        first, last = places[0], places[-1]
        return _Block(
            rows=rows,
            # a slice copies nothing
            where=slice(first, last + 1)
            if places == list(range(first, last + 1))
            else parcel.add(np.array(places)),
            changes=prepare_changes(rows, vocab_size, parcel),
            parameters=None if rows[0].is_greedy else _parameters(rows, vocab_size, parcel),
        )

    def _pick_block(self, block: "_Block", logits_BV: Tensor, id_bits_V: Tensor | None) -> Tensor:
        """See `pick`, for the rows of `block`; without columns that none of them needs."""
        rows = block.rows
        choices_BV = logits_BV.clone() if block.changes else logits_BV
        for change in block.changes:
            change(choices_BV)
        if block.parameters is None or id_bits_V is None:
            largest_B, ids_B = choices_BV.max(-1)
        else:
            ids_B = draw(choices_BV, block.parameters(), id_bits_V=id_bits_V)
            largest_B = choices_BV.amax(-1)
        is_valid_B = largest_B.isfinite()  # NaN anywhere is the largest; -inf: nothing may come
        if rows[0].is_adjusted:
            is_valid_B &= logits_BV.amax(-1).isfinite()
        columns = [ids_B[:, None].to(torch.int32), is_valid_B[:, None].to(torch.int32)]
        if rows[0].sampling.logprobs is not None and self._alternatives is not None:
            ids, logprobs = logprobs_of(logits_BV, ids_B, count=self._alternatives)
            columns += [ids.to(torch.int32), logprobs.view(torch.int32)]
        return torch.cat(columns, dim=1)

    def _read(self, row: SampledRow, picked_C: NDArray[np.int32]) -> Drawn | None:
        if not picked_C[1]:
            return None
        logprobs = None
        count = row.sampling.logprobs
        if count is not None:
            ids, bits = np.split(picked_C[2:], 2)
            values = bits.view(np.float32).tolist()
            logprobs = Logprobs(
                token=values[0],
                most_likely=tuple(zip(ids[1:].tolist(), values[1:], strict=True))[:count],
            )
        return Drawn(token_id=int(picked_C[0]), logprobs=logprobs)


def _has_top_k(row: SampledRow, vocab_size: int) -> bool:
    return 0 < row.sampling.top_k < vocab_size


def _parameters(
    rows: list[SampledRow], vocab_size: int, parcel: Parcel
) -> Callable[[], DrawParameters]:
    """Of rows that all have a top_k, or none; and a top_p, or none; once `parcel` is sent."""
    samplings = [row.sampling for row in rows]
    keys_B = np.array([mixed(row.sampling.seed, row.position) for row in rows], np.uint64)
    sent = {
        "temperature_B": np.array([each.temperature for each in samplings], np.float32),
        "noise_keys_B2": keys_B.view(np.int32).reshape(-1, 2),
    }
    if any(each.min_p > 0 for each in samplings):
        sent["min_p_B"] = np.array([each.min_p for each in samplings], np.float32)
    if _has_top_k(rows[0], vocab_size):
        sent["top_k_B"] = np.array([each.top_k for each in samplings], np.int64)
    if samplings[0].top_p < 1:
        sent["top_p_B"] = np.array([each.top_p for each in samplings], np.float64)
    tensors = {name: parcel.add(values) for name, values in sent.items()}
    most_kept = max(each.top_k for each in samplings)
    return lambda: DrawParameters(
        **{name: tensor() for name, tensor in tensors.items()}, most_kept=most_kept
    )
