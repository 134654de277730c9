"""Steps as the other ranks of a stage get them: what changed since the step before.

Rank 0 has the page tables, the others keep copies under numbers. A step names its tables and lists
the pages that were added. A table whose pages were released or moved is dropped; when a step needs
it again, it begins under another number.

Legend: W works of the step, N pages.
"""

from collections.abc import Sequence as Items
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runtime.engine.pages import BlockTable
from runtime.engine.sequence import Chunk, Sequence, Work, passing


@dataclass(frozen=True, slots=True, kw_only=True)
class StepChange:
    """`ended` tables are dropped, then `begun` ones start empty, each (number, first layer, end).

    `works_W4` has a row for each work: table, position, tokens, blocks added; `pages_N` the pages
    of the added blocks, work by work and layer by layer.
    """

    ended: tuple[int, ...]
    begun: tuple[tuple[int, int, int], ...]
    works_W4: NDArray[np.int64]
    pages_N: NDArray[np.int32]
    payloads: tuple[bytes, ...]


@dataclass(slots=True)
class _Sent:
    number: int
    revision: int
    blocks: int = 0


class TableSender:
    """Owns what other ranks were told of block tables; rank 0 calls it.

    What the other ranks know of the page tables.
    """

    def __init__(self) -> None:
        self._sent: dict[BlockTable, _Sent] = {}
        self._next_number = 0

    def change(self, step: Items[Work]) -> StepChange:
        """What they need to know to run `step`; they are taken to know it from then on."""
        stale = [table for table, sent in self._sent.items() if table.revision != sent.revision]
        ended = tuple(self._sent.pop(table).number for table in stale)
        begun = []
        works_W4 = np.empty((len(step), 4), dtype=np.int64)
        pages = []
        for index, work in enumerate(step):
            sequence, table = work.sequence, work.sequence.table
            sent = self._sent.get(table)
            if sent is None:
                sent = self._sent[table] = _Sent(self._next_number, table.revision)
                self._next_number += 1
                begun.append((sent.number, sequence.first, sequence.end))
            added_LB = table.pages_LB[:, sent.blocks :]
            pages.append(added_LB.ravel())
            works_W4[index] = (
                sent.number,
                work.chunk.position,
                work.chunk.n_tokens,
                added_LB.shape[1],
            )
            sent.blocks = table.blocks
        return StepChange(
            ended=ended,
            begun=tuple(begun),
            works_W4=works_W4,
            pages_N=np.concatenate(pages, dtype=np.int32),
            payloads=tuple(bytes(work.chunk.payload) for work in step),
        )


class TableCopies:
    """Owns another rank's copies of block tables; its process calls it.

    The page tables of rank 0 as another rank knows them.
    """

    def __init__(self) -> None:
        self._sequences: dict[int, Sequence] = {}

    @property
    def tables(self) -> dict[int, BlockTable]:
        return {number: sequence.table for number, sequence in self._sequences.items()}

    def works(self, change: StepChange) -> list[Work]:
        """The step that rank 0 runs."""
        for number in change.ended:
            del self._sequences[number]
        for number, first, end in change.begun:
            self._sequences[number] = passing(first, end)
        works = []
        used = 0
        for row, payload in zip(change.works_W4.tolist(), change.payloads, strict=True):
            number, position, n_tokens, blocks = row
            sequence = self._sequences[number]
            count = blocks * sequence.table.num_layers
            sequence.table.append(change.pages_N[used : used + count].tolist())
            used += count
            chunk = Chunk(
                position=position,
                n_tokens=n_tokens,
                payload=memoryview(payload),
                is_sampled=False,
                arrival=0,
            )
            works.append(Work(sequence=sequence, chunk=chunk))
        return works
