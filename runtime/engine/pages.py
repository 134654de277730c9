"""The books of a stage's KV cache: which pages are free, held, or kept for a prompt that may recur.

A page is one layer of one request. A block is the pages of all layers that a request runs here, for
`page_tokens` consecutive tokens. Blocks of prompts get a name (`BlockName`: what was computed into
them); requests that ask for the same name share them, and while none holds them they stay until
their pages are needed, least recently held first.

Legend: L layers of one request, B blocks (page positions along the sequence).
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


class NoFreePages(Exception):
    """The pool cannot give that many pages now; nothing was taken."""


class KvCacheCorrupt(RuntimeError):
    """Pages were lost or given out twice: a bug, never a user's mistake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockName:
    """All tokens up to the block's end and the way they came (`digest`), in layers [first, end)."""

    digest: bytes
    first: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PageMoves:
    """Where the pages in use were before their pool got another size, and where they are now."""

    before: NDArray[np.int64]
    after: NDArray[np.int64]


class PagePool:
    """Owns which pages are free; only the `KvCacheManager` calls it.

    Which pages are free. Every page is free or in exactly one place.
    """

    def __init__(self, *, total: int) -> None:
        self.total = total
        self._free = list(range(total - 1, -1, -1))
        self._is_free = [True] * total

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def used(self) -> int:
        return self.total - len(self._free)

    def take(self, count: int) -> list[int]:
        """`count` pages. Raises NoFreePages when there are fewer."""
        if count > len(self._free):
            raise NoFreePages(f"{count} pages wanted, {len(self._free)} of {self.total} are free")
        split = len(self._free) - count
        pages = self._free[split:]
        del self._free[split:]
        for page in pages:
            self._is_free[page] = False
        return pages

    def give_back(self, pages: Sequence[int]) -> None:
        """Raises KvCacheCorrupt for a page that is free already or is none of ours."""
        for page in pages:
            if not 0 <= page < self.total or self._is_free[page]:
                raise KvCacheCorrupt(f"page {page} of {self.total} was given back but not in use")
            self._is_free[page] = True
            self._free.append(page)

    def resize(self, total: int) -> PageMoves:
        """Have `total` pages from now on; those in use beyond it move to free ones below.

        Raises NoFreePages, changing nothing, when more are in use.
        """
        if self.used > total:
            raise NoFreePages(f"{self.used} pages are in use, a pool of {total} cannot hold them")
        before = np.flatnonzero(~np.array(self._is_free, dtype=bool))
        stays = before < total
        is_free = np.ones(total, dtype=bool)
        is_free[before[stays]] = False
        after = before.copy()
        after[~stays] = np.flatnonzero(is_free)[: np.count_nonzero(~stays)]
        is_free[after] = False
        self.total = total
        self._is_free = is_free.tolist()
        self._free = np.flatnonzero(is_free)[::-1].tolist()
        return PageMoves(before=before, after=after)


class BlockTable:
    """Owns one request's pages; its sequence holds it.

    The pages of one request on this stage: the same number of blocks for each layer it runs.
    """

    def __init__(self, *, num_layers: int) -> None:
        self.num_layers = num_layers
        self.revision = 0  # counts the times that pages it had were released or moved
        self.names: list[BlockName | None] = []  # of each block; None: no other table may hold it
        self._pages_LB: NDArray[np.int64] = np.empty((num_layers, 4), dtype=np.int64)
        self._address: int = self._pages_LB.ctypes.data

    @property
    def blocks(self) -> int:
        return len(self.names)

    @property
    def pages_LB(self) -> NDArray[np.int64]:
        """Page of each layer (row, 0 is the request's first here) and block (column)."""
        return self._pages_LB[:, : self.blocks]

    def pages_of(self, block: int) -> list[int]:
        """One page per layer."""
        pages: list[int] = self._pages_LB[:, block].tolist()
        return pages

    def address_of(self, layer: int) -> int:
        """Where in memory the pages of row `layer` begin, int64; good until blocks are added."""
        return self._address + layer * self._pages_LB.strides[0]

    def append(self, pages: Sequence[int], *, name: BlockName | None = None) -> None:
        """Add blocks: a whole number of pages for each layer, layer by layer."""
        before, added = self.blocks, len(pages) // self.num_layers
        blocks = before + added
        if blocks > self._pages_LB.shape[1]:
            grown = np.empty((self.num_layers, 2 * blocks), dtype=np.int64)
            grown[:, :before] = self.pages_LB
            self._pages_LB = grown
            self._address = grown.ctypes.data
        self._pages_LB[:, before:blocks] = np.reshape(pages, (self.num_layers, added))
        self.names += [name] * added

    def follow(self, place_of: NDArray[np.int64]) -> None:
        """Its pages have moved: page p is at `place_of`[p] now."""
        self._pages_LB[:, : self.blocks] = place_of[self.pages_LB]
        self.revision += 1

    def clear(self) -> None:
        """Forget all pages."""
        self.names = []
        self.revision += 1


@dataclass(slots=True, kw_only=True)
class _NamedBlock:
    pages: list[int]
    holders: int


class KvCacheManager:
    """Owns which request has which pages; admission, intake and backends call it.

    Pool, tables and named blocks. `prepare` is called with pages before they are held again.
    """

    def __init__(
        self, *, pages: int, page_tokens: int, prepare: Callable[[list[int]], None]
    ) -> None:
        self.page_tokens = page_tokens
        self.pool = PagePool(total=pages)
        self._prepare = [prepare]
        self._named: dict[BlockName, _NamedBlock] = {}
        self._idle: OrderedDict[BlockName, None] = OrderedDict()  # held by no table, oldest first
        self._cached = 0

    def watch(self, prepare: Callable[[list[int]], None]) -> None:
        """Call `prepare` as well with pages before they are held again."""
        self._prepare.append(prepare)

    @property
    def total(self) -> int:
        return self.pool.total

    @property
    def cached(self) -> int:
        """Pages that no table holds and that keep a block with a name."""
        return self._cached

    @property
    def used(self) -> int:
        """Pages that requests hold."""
        return self.pool.used - self._cached

    @property
    def available(self) -> int:
        """Pages a request may get: free ones, and those only kept."""
        return self.total - self.used

    def reserve(self, table: BlockTable, *, tokens: int) -> None:
        """Make room in `table` for the first `tokens` tokens of its request.

        Raises NoFreePages, taking none, when too few are available.
        """
        blocks = -(-tokens // self.page_tokens)
        if blocks > table.blocks:
            pages = self._take((blocks - table.blocks) * table.num_layers)
            for prepare in self._prepare:
                prepare(pages)
            table.append(pages)

    def share(self, table: BlockTable, names: Iterable[BlockName]) -> int:
        """Put the blocks of `names` into an empty `table`, up to the first unknown; how many."""
        shared = 0
        for name in names:
            block = self._named.get(name)
            if block is None:
                break
            if block.holders == 0:
                del self._idle[name]
                self._cached -= len(block.pages)
            block.holders += 1
            table.append(block.pages, name=name)
            shared += 1
        return shared

    def publish(self, table: BlockTable, *, block: int, name: BlockName) -> None:
        """What `table` holds as `block` may be shared from now on, unless another is already."""
        if name not in self._named and table.names[block] is None:
            self._named[name] = _NamedBlock(pages=table.pages_of(block), holders=1)
            table.names[block] = name

    def release(self, table: BlockTable) -> None:
        """Give back all that `table` holds; blocks with a name are kept while there is room."""
        for index in reversed(range(table.blocks)):  # so that the end of a prompt goes first
            name = table.names[index]
            if name is None:
                self.pool.give_back(table.pages_of(index))
                continue
            block = self._named[name]
            block.holders -= 1
            if block.holders == 0:
                self._idle[name] = None
                self._cached += len(block.pages)
        table.clear()

    def resize(self, pages: int, tables: Iterable[BlockTable]) -> PageMoves:
        """Have `pages` from now on; `tables` are all that hold some, and follow where theirs move.

        Blocks that no table holds are forgotten, least recently held first, as far as there is no
        room for them. Raises NoFreePages, changing nothing, when requests hold more.
        """
        if self.used > pages:
            raise NoFreePages(f"{self.used} pages are held, a pool of {pages} cannot hold them")
        while self.pool.used > pages:
            self._forget_oldest()
        place_of = np.arange(self.total, dtype=np.int64)
        moves = self.pool.resize(pages)
        place_of[moves.before] = moves.after
        for table in tables:
            table.follow(place_of)
        for block in self._named.values():
            block.pages = place_of[block.pages].tolist()
        return moves

    def check(self, tables: Sequence[BlockTable]) -> None:
        """Raises KvCacheCorrupt unless free + held + kept pages are all pages, each once."""
        holders: Counter[BlockName] = Counter()
        pages: list[int] = []
        for table in tables:
            for index, name in enumerate(table.names):
                if name is None:
                    pages += table.pages_of(index)
                else:
                    holders[name] += 1
        for name, block in self._named.items():
            pages += block.pages
            if block.holders != holders[name]:
                raise KvCacheCorrupt(
                    f"a shared block has {block.holders} holders, {holders[name]} tables hold it"
                )
        if len(set(pages)) != len(pages):
            raise KvCacheCorrupt("a page is in two tables")
        if len(pages) != self.pool.used:
            raise KvCacheCorrupt(
                f"{self.pool.used} pages are in use but the tables hold {len(pages)}"
            )
        kept = sum(len(block.pages) for block in self._named.values() if block.holders == 0)
        if kept != self._cached:
            raise KvCacheCorrupt(f"{kept} pages are kept for prompts, the books say {self._cached}")

    def _take(self, count: int) -> list[int]:
        if count > self.available:
            raise NoFreePages(
                f"{count} pages wanted, {self.available} of {self.total} are available"
            )
        while self.pool.free < count:
            self._forget_oldest()
        return self.pool.take(count)

    def _forget_oldest(self) -> None:
        """The block that no table has held for longest."""
        name, _ = self._idle.popitem(last=False)
        block = self._named.pop(name)
        self._cached -= len(block.pages)
        self.pool.give_back(block.pages)
