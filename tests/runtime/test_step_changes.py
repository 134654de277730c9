"""Steps as differences: another rank has the tables and the cache of rank 0 after each of them."""

import pickle
from collections.abc import Collection, Iterator
from collections.abc import Sequence as Items
from contextlib import contextmanager
from typing import cast

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from torch import Tensor

from runtime.engine.follower import Order, take_part
from runtime.engine.kv_cache import KvCache
from runtime.engine.pages import BlockName, BlockTable, KvCacheManager
from runtime.engine.ranks import LeadingRunner, RankGroup
from runtime.engine.sequence import Chunk, RequestKey, Sequence, Work
from runtime.engine.step_changes import TableCopies, TableSender
from runtime.engine.step_runner import StepRunner
from runtime.models.model_config import ModelConfig
from runtime.protocol.data import Hop, Route, Sampling
from tests.examples import examples

LAYERS, PAGE_TOKENS, PAGES = 4, 4, 120
CPU = torch.device("cpu")
CONFIG = ModelConfig(
    num_layers=LAYERS,
    hidden_size=2,
    intermediate_size=2,
    num_heads=1,
    num_kv_heads=1,
    head_size=2,
    vocab_size=3,
    layer_bytes=(1,) * LAYERS,
    tie_word_embeddings=False,
    max_position_embeddings=64,
    dtype_name="float32",
)
SAMPLING = Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=1)


def sequence_of(number: int, first: int, end: int) -> Sequence:
    return Sequence(
        key=RequestKey(request=number, epoch=1),
        generation=1,
        route=Route(
            hops=(Hop(node="here", first=first, end=end),), sampling=SAMPLING, prompt_tokens=1
        ),
        hop=0,
        arrival=number,
    )


def work_of(sequence: Sequence, position: int, ids: Items[int]) -> Work:
    payload = np.array(ids, dtype="<i4").tobytes()
    chunk = Chunk(
        position=position,
        n_tokens=len(ids),
        payload=memoryview(payload),
        is_sampled=False,
        arrival=0,
    )
    return Work(sequence=sequence, chunk=chunk)


class Writes(StepRunner):
    """Writes the token ids of a step into its pages; `found` is all that its requests have there,
    by layer and position."""

    def __init__(self) -> None:
        cache = KvCache(CONFIG, pages=PAGES, page_tokens=PAGE_TOKENS, device=CPU)
        super().__init__(CONFIG, cache, CPU)
        self.pages_PSKH = cache.key_PSKH
        self.pages_PSKH.fill_(-1)  # what requests before left there
        self.found: list[Tensor] = []

    @property
    def held(self) -> Collection[int]:
        return range(LAYERS)

    def forward(self, step: Items[Work]) -> Tensor:
        self.found = []
        for work in step:
            pages_LB = torch.from_numpy(work.sequence.table.pages_LB)
            ids_T = torch.from_numpy(np.frombuffer(work.chunk.payload, dtype="<i4").copy())
            for position, token in zip(
                range(work.chunk.position, work.chunk.end), ids_T, strict=True
            ):
                block, slot = divmod(position, PAGE_TOKENS)
                self.pages_PSKH[pages_LB[:, block], slot] = token.float()
            held_LT = self.pages_PSKH[pages_LB, :, 0, 0].flatten(1)
            self.found.append(held_LT.clone())
        return torch.empty(0)

    def logits(self, hidden_RD: Tensor) -> Tensor:
        raise AssertionError("no step of these tests is sampled")

    _prepare_step = _prepare_layers = _embed = forget = logits  # type: ignore[assignment]


class Loopback:
    """A group whose other rank is in this process; orders pass through bytes."""

    ranks = 2

    def __init__(self) -> None:
        self.other = Writes()
        self.copies = TableCopies()

    def tell(self, order: Order) -> None:
        pickled = pickle.dumps(order)
        take_part(pickle.loads(pickled), self.other, self.copies)  # noqa: S301 (our own)

    @contextmanager
    def in_step(self) -> Iterator[None]:
        yield


class StepsOfManyRequests(RuleBasedStateMachine):
    """Requests come, run in steps of their own choice, are preempted, end, and share prompts."""

    def __init__(self) -> None:
        super().__init__()
        self.group = Loopback()
        self.mine = Writes()
        self.runner = LeadingRunner(cast("RankGroup", self.group), self.mine)
        self.done: dict[Sequence, int] = {}  # tokens of each that lives
        self.begun = 0

    @property
    def kv_manager(self) -> KvCacheManager:
        return self.mine.cache.kv_manager

    @property
    def tables(self) -> list[BlockTable]:
        return [sequence.table for sequence in self.done]

    @rule(first=st.integers(0, LAYERS - 1), depth=st.integers(1, LAYERS), prompt=st.integers(0, 2))
    def begin(self, first: int, depth: int, prompt: int) -> None:
        sequence = sequence_of(self.begun, first, min(LAYERS, first + depth))
        self.begun += 1
        name = BlockName(digest=bytes([prompt]), first=sequence.first, end=sequence.end)
        self.done[sequence] = self.kv_manager.share(sequence.table, [name]) * PAGE_TOKENS

    @precondition(lambda self: self.done)
    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        some = st.lists(st.sampled_from([*self.done]), min_size=1, unique=True)
        self.run(data.draw(some), data)

    def run(self, sequences: list[Sequence], data: st.DataObject) -> None:
        works = []
        for sequence in sequences:
            ids = data.draw(st.lists(st.integers(0, 1000), min_size=1, max_size=9))
            position = self.done[sequence]
            blocks = -(-(position + len(ids)) // PAGE_TOKENS) - sequence.table.blocks
            if blocks * sequence.table.num_layers > self.kv_manager.available:
                continue
            self.kv_manager.reserve(sequence.table, tokens=position + len(ids))
            works.append(work_of(sequence, position, ids))
            self.done[sequence] = position + len(ids)
        if not works:
            return
        self.runner.forward(works)
        for mine_LT, theirs_LT in zip(self.mine.found, self.group.other.found, strict=True):
            assert torch.equal(mine_LT, theirs_LT)

    @precondition(lambda self: self.done)
    @rule(data=st.data())
    def run_all(self, data: st.DataObject) -> None:
        self.run([*self.done], data)

    @precondition(lambda self: self.done)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from([*self.done]))
        del self.done[sequence]
        self.kv_manager.release(sequence.table)

    @precondition(lambda self: self.done)
    @rule(data=st.data())
    def preempt(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from([*self.done]))
        self.kv_manager.release(sequence.table)
        self.done[sequence] = 0

    @precondition(lambda self: self.done)
    @rule(data=st.data(), prompt=st.integers(0, 2))
    def publish(self, data: st.DataObject, prompt: int) -> None:
        sequence = data.draw(st.sampled_from([*self.done]))
        if self.done[sequence] >= PAGE_TOKENS:
            name = BlockName(digest=bytes([prompt]), first=sequence.first, end=sequence.end)
            self.kv_manager.publish(sequence.table, block=0, name=name)

    @invariant()
    def copies_are_of_requests_that_ran(self) -> None:
        tables = self.group.copies.tables.values()
        assert sum(table.num_layers for table in tables) <= LAYERS * self.begun
        self.kv_manager.check(self.tables)


TestStepsOfManyRequests = StepsOfManyRequests.TestCase
TestStepsOfManyRequests.settings = settings(max_examples=examples(60), stateful_step_count=40)


def test_copies_end_with_the_requests() -> None:
    group, mine = Loopback(), Writes()
    runner = LeadingRunner(cast("RankGroup", group), mine)
    for number in range(10):
        sequence = sequence_of(number, 0, LAYERS)
        mine.cache.kv_manager.reserve(sequence.table, tokens=1)
        runner.forward([work_of(sequence, 0, [number])])
        assert len(group.copies.tables) == 1
        mine.cache.kv_manager.release(sequence.table)


def test_a_decode_of_long_contexts_is_a_few_bytes_for_each_request() -> None:
    layers, requests, context, page_tokens = 30, 32, 2000, 16
    kv_manager = KvCacheManager(
        pages=layers * requests * (context // page_tokens + 1),
        page_tokens=page_tokens,
        prepare=lambda pages: None,
    )
    sender = TableSender()
    sequences = [sequence_of(number, 0, layers) for number in range(requests)]
    sizes = []
    for position in (context - 1, context):  # the second step begins a block for each
        works = []
        for sequence in sequences:
            kv_manager.reserve(sequence.table, tokens=position + 1)
            works.append(work_of(sequence, position, [7]))
        sizes.append(len(pickle.dumps(sender.change(works))))
    tables_bytes = sum(sequence.table.pages_LB.size for sequence in sequences) * 4
    new_bytes = requests * layers * 4
    assert sizes[0] > tables_bytes * 0.9
    assert sizes[1] - new_bytes < 80 * requests
