"""Rows that follow their pages in C, held against pages gathered for torch's attention."""

import itertools
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from runtime.engine import attention
from runtime.engine.attention import PagedAttention
from runtime.engine.kv_cache import KvCache
from runtime.engine.sequence import Chunk, Sequence, Work, passing
from runtime.models.compiled.library import compiled_kernels
from runtime.models.decoder import AttentionRule
from runtime.models.model_config import ModelConfig

pytestmark = pytest.mark.skipif(
    compiled_kernels() is None, reason="the kernels were not built here, or the CPU has no AVX2"
)

PAGE_TOKENS = 4
LAYERS = 2
LENGTHS = (1, 4, 5, 23, 38)  # of what each request sees, its own token included


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def work_of(sequence: Sequence, *, position: int, rows: int) -> Work:
    """Rows of a request whose keys and values are given by the test."""
    chunk = Chunk(
        position=position, n_tokens=rows, payload=memoryview(b""), is_sampled=False, arrival=0
    )
    return Work(sequence=sequence, chunk=chunk)


def cache_of(key_PSKH: Tensor, value_PSKH: Tensor) -> KvCache:
    """Pages that hold copies of these."""
    pages, page_tokens, kv_heads, head_size = key_PSKH.shape
    config = ModelConfig(
        num_layers=LAYERS,
        hidden_size=kv_heads * head_size,
        intermediate_size=1,
        num_heads=kv_heads,
        num_kv_heads=kv_heads,
        head_size=head_size,
        vocab_size=3,
        layer_bytes=(1,) * LAYERS,
        tie_word_embeddings=False,
        max_position_embeddings=64,
        dtype_name=str(key_PSKH.dtype).removeprefix("torch."),
    )
    cache = KvCache(config, pages=pages, page_tokens=page_tokens, device=key_PSKH.device)
    cache.key_PSKH.copy_(key_PSKH)
    cache.value_PSKH.copy_(value_PSKH)
    return cache


class Step:
    """Decodes of `lengths` and, between the first two of them, a chunk of a prompt."""

    def __init__(
        self,
        *,
        dtype: torch.dtype = torch.float32,
        heads: int = 4,
        kv_heads: int = 2,
        head_size: int = 16,
        lengths: tuple[int, ...] = LENGTHS,
        prompt: bool = True,
    ) -> None:
        dice = torch.Generator().manual_seed(1)
        blocks = [-(-length // PAGE_TOKENS) for length in (*lengths, 9)]
        pages = iter(torch.randperm(LAYERS * sum(blocks), generator=dice).tolist())
        self.works: list[Work] = []
        for index, length in enumerate((*lengths, 9)):
            sequence = passing(5, 5 + LAYERS)
            sequence.table.append([next(pages) for _ in range(LAYERS * blocks[index])])
            rows = 1 if index < len(lengths) else 3
            self.works.append(work_of(sequence, position=length - rows, rows=rows))
        chunk = self.works.pop()
        if prompt:
            self.works.insert(1, chunk)
        shape = (LAYERS * sum(blocks), PAGE_TOKENS, kv_heads, head_size)
        self._pools = [torch.randn(shape, generator=dice).to(dtype) for _ in range(2)]
        rows = sum(work.chunk.n_tokens for work in self.works)
        fused_TAH = torch.randn(rows, heads + 2 * kv_heads, head_size, generator=dice).to(dtype)
        self.query_TNH = fused_TAH[:, :heads]
        self.key_TKH = fused_TAH[:, heads : heads + kv_heads]
        self.value_TKH = fused_TAH[:, heads + kv_heads :]

    def run(self, rule: AttentionRule) -> tuple[Tensor, KvCache]:
        """What the rows of the second layer get, and the pages behind it."""
        pools = cache_of(*self._pools)
        attend = PagedAttention(self.works, pools, gather_tokens=64)
        return attend(6, self.query_TNH, self.key_TKH, self.value_TKH, rule), pools


def assert_same_as_gathered(
    step: Step, rule: AttentionRule, monkeypatch: pytest.MonkeyPatch
) -> None:
    found_TNH, pools = step.run(rule)
    monkeypatch.setattr(attention, "compiled_kernels", lambda: None)
    expected_TNH, expected_pools = step.run(rule)
    assert torch.equal(pools.key_PSKH, expected_pools.key_PSKH)
    assert torch.equal(pools.value_PSKH, expected_pools.value_PSKH)
    close = 1e-5 if found_TNH.dtype == torch.float32 else 3 * torch.finfo(found_TNH.dtype).eps
    torch.testing.assert_close(found_TNH, expected_TNH, rtol=close, atol=close)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_size"), [(1, 1, 8), (4, 2, 16), (6, 2, 40), (8, 1, 64)]
)
def test_pages_followed_and_pages_gathered_give_the_same(
    dtype: torch.dtype,
    heads: int,
    kv_heads: int,
    head_size: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step = Step(dtype=dtype, heads=heads, kv_heads=kv_heads, head_size=head_size)
    assert_same_as_gathered(step, AttentionRule(scale=head_size**-0.5), monkeypatch)


@pytest.mark.parametrize("window", [1, 3, 8, 30])
@pytest.mark.parametrize("softcap", [None, 2.0])
def test_windows_and_caps_on_scores_hold(
    window: int, softcap: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = AttentionRule(scale=0.3, window=window, softcap=softcap)
    assert_same_as_gathered(Step(), rule, monkeypatch)


def test_scores_far_apart_are_neither_lost_nor_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_same_as_gathered(Step(), AttentionRule(scale=40.0), monkeypatch)


def test_what_a_request_gets_depends_on_no_other() -> None:
    rule = AttentionRule(scale=0.25)
    together_TNH, _ = Step(prompt=False).run(rule)
    step = Step(prompt=False)
    for row, work in enumerate(list(step.works)):
        alone = Step(prompt=False)
        alone.works = [work]
        alone.query_TNH = step.query_TNH[row : row + 1]
        alone.key_TKH = step.key_TKH[row : row + 1]
        alone.value_TKH = step.value_TKH[row : row + 1]
        assert torch.equal(alone.run(rule)[0][0], together_TNH[row])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (6, 2), (8, 2)])
@pytest.mark.parametrize("window", [None, 5, 37])
def test_what_a_row_gets_does_not_depend_on_the_chunks_of_its_prompt(
    dtype: torch.dtype, heads: int, kv_heads: int, window: int | None
) -> None:
    tokens, size = 75, 24
    dice = torch.Generator().manual_seed(7)
    blocks = -(-tokens // PAGE_TOKENS)
    sequence = passing(0, 1)
    sequence.table.append(torch.randperm(blocks, generator=dice).tolist())
    fused_TAH = torch.randn(tokens, heads + 2 * kv_heads, size, generator=dice).to(dtype)
    rule = AttentionRule(scale=0.4, window=window)

    def run_in(*borders: int) -> Tensor:
        pages = torch.zeros(blocks, PAGE_TOKENS, kv_heads, size, dtype=dtype)
        pools = cache_of(pages, pages)
        parts = []
        for start, end in itertools.pairwise((0, *borders, tokens)):
            work = work_of(sequence, position=start, rows=end - start)
            part_TAH = fused_TAH[start:end]
            parts.append(
                PagedAttention([work], pools, gather_tokens=64)(
                    0,
                    part_TAH[:, :heads],
                    part_TAH[:, heads : heads + kv_heads],
                    part_TAH[:, heads + kv_heads :],
                    rule,
                )
            )
        return torch.cat(parts)

    whole_TNH = run_in()
    assert torch.equal(run_in(16), whole_TNH)
    assert torch.equal(run_in(3, 4, 50), whole_TNH)
    assert torch.equal(run_in(*range(1, tokens)), whole_TNH)


@pytest.mark.usefixtures("two_threads")
def test_threads_change_no_number() -> None:
    rule = AttentionRule(scale=0.25)
    shared = [Step(prompt=False).run(rule)[0] for _ in range(20)]
    torch.set_num_threads(1)
    alone_TNH, _ = Step(prompt=False).run(rule)
    assert all(torch.equal(each_TNH, alone_TNH) for each_TNH in shared)


@pytest.mark.parametrize("broken", ["query_TNH", "key_TKH", "value_TKH"])
def test_what_is_no_number_reaches_its_own_request_alone(broken: str) -> None:
    step = Step(prompt=False)
    getattr(step, broken)[3] = torch.nan
    found_TNH, _ = step.run(AttentionRule(scale=0.25))
    assert found_TNH[3].isnan().all()
    assert not found_TNH[[0, 1, 2, 4]].isnan().any()
