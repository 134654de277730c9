import numpy as np
import psutil
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from runtime.engine.kv_cache import KvCache
from runtime.engine.page_memory import DevicePages, HostPages, copied
from runtime.engine.pages import (
    BlockName,
    BlockTable,
    KvCacheCorrupt,
    KvCacheManager,
    NoFreePages,
    PageMoves,
    PagePool,
)
from runtime.models.model_config import ModelConfig
from tests.examples import examples

PAGE_TOKENS = 4
CONFIG = ModelConfig(
    num_layers=6,
    hidden_size=8,
    intermediate_size=16,
    num_heads=2,
    num_kv_heads=1,
    head_size=4,
    vocab_size=300,
    layer_bytes=(4 * 624,) * 6,
    tie_word_embeddings=False,
    max_position_embeddings=64,
    dtype_name="float32",
)


CPU = torch.device("cpu")


def make_cache(pages: int) -> KvCacheManager:
    return KvCache(CONFIG, pages=pages, page_tokens=PAGE_TOKENS, device=CPU).kv_manager


def names_of(prompt: int, blocks: int, *, num_layers: int) -> list[BlockName]:
    return [
        BlockName(digest=bytes([prompt, block]), first=0, end=num_layers) for block in range(blocks)
    ]


def held(table: BlockTable) -> list[int]:
    return table.pages_LB.ravel().tolist()


class PagesOfManyRequests(RuleBasedStateMachine):
    """Requests of different depth grow and end in any order, and the pool changes its size
    meanwhile; no page is lost or shared, nor what is in it."""

    most_pages = 45

    def __init__(self) -> None:
        super().__init__()
        self.memory = KvCache(
            CONFIG, pages=30, page_tokens=PAGE_TOKENS, device=CPU, most_pages=self.most_pages
        )
        self.cache = self.memory.kv_manager
        self.tables: list[BlockTable] = []
        self.tokens: list[int] = []

    @rule(num_layers=st.integers(1, 6))
    def open(self, num_layers: int) -> None:
        self.tables.append(BlockTable(num_layers=num_layers))
        self.tokens.append(0)

    @rule(num_layers=st.integers(1, 2), wanted=st.integers(0, 5), prompt=st.integers(0, 1))
    def open_with_a_known_prompt(self, num_layers: int, wanted: int, prompt: int) -> None:
        table = BlockTable(num_layers=num_layers)
        shared = self.cache.share(table, names_of(prompt, wanted, num_layers=num_layers))
        assert table.blocks == shared <= wanted
        self.tables.append(table)
        self.tokens.append(shared * PAGE_TOKENS)

    @precondition(lambda self: self.tables)
    @rule(data=st.data(), prompt=st.integers(0, 1))
    def publish(self, data: st.DataObject, prompt: int) -> None:
        table = self.tables[data.draw(st.integers(0, len(self.tables) - 1))]
        for block, name in enumerate(names_of(prompt, table.blocks, num_layers=table.num_layers)):
            self.cache.publish(table, block=block, name=name)

    @precondition(lambda self: self.tables)
    @rule(data=st.data(), more=st.integers(0, 12))
    def grow(self, data: st.DataObject, more: int) -> None:
        index = data.draw(st.integers(0, len(self.tables) - 1))
        table, wanted = self.tables[index], self.tokens[index] + more
        before = table.pages_LB.copy()
        needed = max(0, -(-wanted // PAGE_TOKENS) - table.blocks) * table.num_layers
        if needed > self.cache.available:
            with pytest.raises(NoFreePages):
                self.cache.reserve(table, tokens=wanted)
            assert (table.pages_LB == before).all()
        else:
            self.cache.reserve(table, tokens=wanted)
            self.tokens[index] = wanted
            assert (table.pages_LB[:, : before.shape[1]] == before).all()

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.tables) - 1))
        self.cache.release(self.tables.pop(index))
        self.tokens.pop(index)

    @rule(pages=st.integers(0, 60), looks_into_prompts=st.booleans())
    def resize(self, pages: int, looks_into_prompts: bool) -> None:
        prompts = self._share_known_prompts() if looks_into_prompts else []
        holders = [*self.tables, *prompts]
        for pool_PSKH in (self.memory.key_PSKH, self.memory.value_PSKH):
            pool_PSKH.copy_(torch.randn(pool_PSKH.shape))
        before, size = [self._contents(table) for table in holders], self.cache.total
        if self.cache.used > pages:
            with pytest.raises(NoFreePages, match=f"a pool of {pages} cannot hold them"):
                self.memory.resize(pages, holders)
            assert self.cache.total == size
        else:
            self.memory.resize(pages, holders)
            assert self.cache.total == pages
            assert len(self.memory.key_PSKH) == len(self.memory.value_PSKH) == pages
        assert all(map(torch.equal, before, map(self._contents, holders)))
        for table in prompts:
            self.cache.release(table)

    def _share_known_prompts(self) -> list[BlockTable]:
        tables = [BlockTable(num_layers=1), BlockTable(num_layers=1)]
        for prompt, table in enumerate(tables):
            self.cache.share(table, names_of(prompt, 3, num_layers=1))
        return tables

    def _contents(self, table: BlockTable) -> torch.Tensor:
        pages_LB = torch.from_numpy(table.pages_LB)
        return torch.stack((self.memory.key_PSKH[pages_LB], self.memory.value_PSKH[pages_LB]))

    @invariant()
    def every_page_is_free_or_held_once(self) -> None:
        self.cache.check(self.tables)
        cache = self.cache
        assert cache.pool.free + cache.used + cache.cached == cache.total
        assert cache.used == len({page for table in self.tables for page in held(table)})

    @invariant()
    def tables_are_as_long_as_their_requests(self) -> None:
        for table, tokens in zip(self.tables, self.tokens, strict=True):
            assert table.pages_LB.shape == (table.num_layers, -(-tokens // PAGE_TOKENS))


class PagesOnADevice(PagesOfManyRequests):
    """As on a GPU, where memory of another size is taken anew."""

    def __init__(self) -> None:
        super().__init__()
        shape = (PAGE_TOKENS, CONFIG.num_kv_heads, CONFIG.head_size)
        self.memory._memories = tuple(
            DevicePages(30, shape, dtype=CONFIG.dtype, device=CPU) for _ in range(2)
        )


SETTINGS = settings(max_examples=examples(30), stateful_step_count=30)
TestPagesOfManyRequests = PagesOfManyRequests.TestCase
TestPagesOfManyRequests.settings = SETTINGS
TestPagesOnADevice = PagesOnADevice.TestCase
TestPagesOnADevice.settings = SETTINGS


def test_pages_that_are_given_up_are_the_systems_again() -> None:
    page_bytes, process = 1 << 20, psutil.Process()
    memory = HostPages(64, (page_bytes,), most=64, dtype=torch.uint8)
    before = process.memory_info().rss
    nothing = np.empty(0, dtype=np.int64)
    memory.resize(8, PageMoves(before=nothing, after=nothing))
    assert before - process.memory_info().rss > 48 * page_bytes
    assert memory.claimed_bytes == 8 * page_bytes
    memory.resize(64, PageMoves(before=nothing, after=nothing))
    assert memory.claimed_bytes == 8 * page_bytes  # until they are written
    assert not memory.pages_P[8:].any()


def test_pages_that_wait_beside_are_copied_whole_however_many_they_are() -> None:
    pool_PSKH = torch.arange(3000.0 * 2).reshape(3000, 1, 1, 2)
    pages_U = torch.arange(2999, 0, -1)
    assert torch.equal(copied(pool_PSKH, pages_U, place=CPU), pool_PSKH[pages_U])


def test_a_smaller_pool_forgets_prompts_that_nobody_holds_the_longest_unused_first() -> None:
    cache = make_cache(12)
    held_now = published(cache, prompt=2, blocks=1)
    for prompt in (0, 1):
        cache.release(published(cache, prompt=prompt, blocks=2))
    cache.resize(6, [held_now])
    assert (cache.total, cache.used, cache.cached) == (6, 2, 4)
    assert cache.share(BlockTable(num_layers=2), names_of(0, 2, num_layers=2)) == 0
    assert cache.share(BlockTable(num_layers=2), names_of(1, 2, num_layers=2)) == 2


def test_a_page_given_back_twice_is_an_error() -> None:
    pool = PagePool(total=3)
    pages = pool.take(2)
    pool.give_back(pages)
    with pytest.raises(KvCacheCorrupt, match="given back but not in use"):
        pool.give_back(pages[:1])


def test_taking_more_pages_than_are_free_takes_none_and_says_how_many_there_are() -> None:
    pool = PagePool(total=3)
    with pytest.raises(NoFreePages, match="4 pages wanted, 3 of 3 are free"):
        pool.take(4)
    assert pool.free == 3


def test_a_table_that_was_forgotten_is_noticed() -> None:
    cache = make_cache(8)
    cache.reserve(BlockTable(num_layers=2), tokens=5)
    with pytest.raises(KvCacheCorrupt, match="4 pages are in use but the tables hold 0"):
        cache.check([])


def test_a_request_takes_pages_only_for_the_layers_it_runs() -> None:
    cache = make_cache(100)
    shallow, deep = BlockTable(num_layers=1), BlockTable(num_layers=5)
    cache.reserve(shallow, tokens=9)
    cache.reserve(deep, tokens=9)
    assert shallow.pages_LB.size == 3
    assert deep.pages_LB.size == 15


def published(cache: KvCacheManager, *, prompt: int, blocks: int) -> BlockTable:
    table = BlockTable(num_layers=2)
    cache.reserve(table, tokens=blocks * PAGE_TOKENS)
    for block, name in enumerate(names_of(prompt, blocks, num_layers=2)):
        cache.publish(table, block=block, name=name)
    return table


def test_a_prompt_whose_request_ended_is_found_again_up_to_where_it_differs() -> None:
    cache = make_cache(20)
    first = published(cache, prompt=0, blocks=3)
    pages = first.pages_LB.copy()
    cache.release(first)
    assert (cache.used, cache.cached) == (0, 6)
    again = BlockTable(num_layers=2)
    wanted = [*names_of(0, 2, num_layers=2), *names_of(1, 1, num_layers=2)]
    assert cache.share(again, wanted) == 2
    assert (again.pages_LB == pages[:, :2]).all()
    assert (cache.used, cache.cached) == (4, 2)


def test_pages_of_other_layers_are_not_found() -> None:
    cache = make_cache(20)
    cache.release(published(cache, prompt=0, blocks=1))
    name = BlockName(digest=names_of(0, 1, num_layers=2)[0].digest, first=1, end=3)
    assert cache.share(BlockTable(num_layers=2), [name]) == 0


def test_two_requests_share_the_pages_of_one_prompt_and_the_last_one_lets_go() -> None:
    cache = make_cache(20)
    first = published(cache, prompt=0, blocks=2)
    second = BlockTable(num_layers=2)
    assert cache.share(second, names_of(0, 2, num_layers=2)) == 2
    cache.release(first)
    assert (cache.used, cache.cached) == (4, 0)
    cache.check([second])
    cache.release(second)
    assert (cache.used, cache.cached) == (0, 4)


def test_kept_pages_go_to_whoever_needs_them_the_longest_unused_first() -> None:
    cache = make_cache(8)
    older, newer = published(cache, prompt=0, blocks=2), published(cache, prompt=1, blocks=2)
    cache.release(older)
    cache.release(newer)
    cache.reserve(BlockTable(num_layers=2), tokens=PAGE_TOKENS)
    assert cache.share(BlockTable(num_layers=2), names_of(0, 2, num_layers=2)) == 1
    assert cache.share(BlockTable(num_layers=2), names_of(1, 2, num_layers=2)) == 2


def test_pages_that_are_held_are_never_given_away() -> None:
    cache = make_cache(8)
    published(cache, prompt=0, blocks=2)
    with pytest.raises(NoFreePages, match="6 pages wanted, 4 of 8 are available"):
        cache.reserve(BlockTable(num_layers=2), tokens=3 * PAGE_TOKENS)


def test_a_shared_block_that_lost_a_holder_is_noticed() -> None:
    cache = make_cache(8)
    published(cache, prompt=0, blocks=2)
    with pytest.raises(KvCacheCorrupt, match="1 holders, 0 tables hold it"):
        cache.check([])
