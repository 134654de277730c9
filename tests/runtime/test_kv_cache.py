import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from runtime.engine.kv_cache import KvCache
from runtime.engine.pages import KvCacheCorrupt, NoFreePages, PageBooks, PagePool, PageTable
from runtime.models.config import ModelConfig

PAGE_TOKENS = 4
CONFIG = ModelConfig(
    num_layers=6,
    hidden_size=8,
    intermediate_size=16,
    num_heads=2,
    num_kv_heads=1,
    head_size=4,
    vocab_size=300,
    layer_parameters=(624,) * 6,
    tie_word_embeddings=False,
    max_position_embeddings=64,
    dtype=torch.float32,
)


def make_cache(pages: int) -> PageBooks:
    cpu = torch.device("cpu")
    return KvCache(CONFIG, pages=pages, page_tokens=PAGE_TOKENS, device=cpu).books


class PagesOfManyRequests(RuleBasedStateMachine):
    """Requests of different depth grow and end in any order; no page is lost or shared."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = make_cache(30)
        self.tables: list[PageTable] = []
        self.tokens: list[int] = []

    @rule(num_layers=st.integers(1, 6))
    def open(self, num_layers: int) -> None:
        self.tables.append(PageTable(num_layers=num_layers))
        self.tokens.append(0)

    @precondition(lambda self: self.tables)
    @rule(data=st.data(), more=st.integers(0, 12))
    def grow(self, data: st.DataObject, more: int) -> None:
        index = data.draw(st.integers(0, len(self.tables) - 1))
        table, wanted = self.tables[index], self.tokens[index] + more
        before = table.pages_LB.copy()
        needed = max(0, -(-wanted // PAGE_TOKENS) - table.blocks) * table.num_layers
        if needed > self.cache.pool.free:
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

    @invariant()
    def every_page_is_free_or_held_once(self) -> None:
        self.cache.check(self.tables)
        assert self.cache.pool.free + self.cache.pool.used == self.cache.pool.total

    @invariant()
    def tables_are_as_long_as_their_requests(self) -> None:
        for table, tokens in zip(self.tables, self.tokens, strict=True):
            assert table.pages_LB.shape == (table.num_layers, -(-tokens // PAGE_TOKENS))


TestPagesOfManyRequests = PagesOfManyRequests.TestCase
TestPagesOfManyRequests.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


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
    cache.reserve(PageTable(num_layers=2), tokens=5)
    with pytest.raises(KvCacheCorrupt, match="4 pages are in use but the tables hold 0"):
        cache.check([])


def test_a_request_takes_pages_only_for_the_layers_it_runs() -> None:
    cache = make_cache(100)
    shallow, deep = PageTable(num_layers=1), PageTable(num_layers=5)
    cache.reserve(shallow, tokens=9)
    cache.reserve(deep, tokens=9)
    assert shallow.pages_LB.size == 3
    assert deep.pages_LB.size == 15
