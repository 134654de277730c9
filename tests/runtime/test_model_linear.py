"""The product of rows and weights, whatever the CPU and its torch have for it."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from runtime.models import linear as module
from runtime.models.compiled.library import Kernels, compiled_kernels
from runtime.models.linear import linear

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture
def compiled() -> Kernels:
    kernels = compiled_kernels()
    if kernels is None:
        pytest.skip("the kernels were not built here, or the CPU has no AVX2")
    return kernels


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def drawn(*shape: int, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator).to(dtype)


def exact(rows_TD: Tensor, weight_ED: Tensor, bias_E: Tensor | None) -> Tensor:
    exact_TE = rows_TD.double() @ weight_ED.double().T
    return exact_TE if bias_E is None else exact_TE + bias_E.double()


def assert_rounded_once(found_TE: Tensor, exact_TE: Tensor) -> None:
    """Within one rounding, and what a float32 sum of up to 1025 products of about 1 is off by."""
    rounding = max(torch.finfo(found_TE.dtype).eps, 1025 * torch.finfo(torch.float32).eps)
    torch.testing.assert_close(found_TE.double(), exact_TE, rtol=rounding, atol=rounding)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 33, 100])
@pytest.mark.parametrize(("outputs", "inputs"), [(1, 8), (7, 16), (64, 40), (1001, 1024)])
@pytest.mark.parametrize("biased", [True, False])
def test_the_compiled_product_is_the_exact_one_rounded_once(
    compiled: Kernels, dtype: torch.dtype, rows: int, outputs: int, inputs: int, biased: bool
) -> None:
    rows_TD, weight_ED = drawn(rows, inputs, dtype=dtype), drawn(outputs, inputs, dtype=dtype)
    bias_E = drawn(outputs, dtype=dtype) if biased else None
    found_TE = compiled.multiply(rows_TD, weight_ED, bias_E)
    assert found_TE.dtype == dtype
    assert_rounded_once(found_TE, exact(rows_TD, weight_ED, bias_E))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("outputs", "inputs"), [(99, 64), (3, 1), (50, 37), (17, 1100)])
def test_what_a_row_gets_depends_on_no_other_row(
    dtype: torch.dtype, outputs: int, inputs: int
) -> None:
    rows_TD, weight_ED = drawn(101, inputs, dtype=dtype), drawn(outputs, inputs, dtype=dtype)
    whole_TE = linear(rows_TD, weight_ED)
    for first, end in ((0, 1), (1, 3), (3, 8), (8, 13), (13, 51), (51, 101)):
        assert torch.equal(linear(rows_TD[first:end], weight_ED), whole_TE[first:end])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("inputs", [1, 7, 8, 15, 16, 33, 1100])
@pytest.mark.parametrize("rows", [1, 2, 7, 50])
def test_every_instruction_set_gives_the_same_numbers(
    compiled: Kernels, dtype: torch.dtype, inputs: int, rows: int
) -> None:
    rows_TD, weight_ED = drawn(rows, inputs, dtype=dtype), drawn(21, inputs, dtype=dtype)
    bias_E = drawn(21, dtype=dtype)
    rows_TD[0] *= 1e-37  # what is subnormal in bfloat16 and its sums
    rows_TD[-1, 0] = torch.finfo(dtype).tiny / 2
    found = [each.multiply(rows_TD, weight_ED, bias_E) for each in compiled.narrower()]
    assert all(torch.equal(each_TE, found[0]) for each_TE in found)


@pytest.mark.parametrize("outputs", [1, 4, 5, 257])
@pytest.mark.usefixtures("two_threads")
def test_threads_share_the_outputs_and_change_none(compiled: Kernels, outputs: int) -> None:
    rows_TD = drawn(9, 64, dtype=torch.bfloat16)
    weight_ED = drawn(outputs, 64, dtype=torch.bfloat16)
    shared = [compiled.multiply(rows_TD, weight_ED, None) for _ in range(200)]
    torch.set_num_threads(1)
    alone_TE = compiled.multiply(rows_TD, weight_ED, None)
    assert all(torch.equal(each_TE, alone_TE) for each_TE in shared)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_what_is_no_number_or_too_large_stays_so(compiled: Kernels, dtype: torch.dtype) -> None:
    weight_ED = torch.ones(4, 8, dtype=dtype)
    rows_TD = torch.ones(3, 8, dtype=dtype)
    rows_TD[0, 3] = torch.nan
    rows_TD[1] = torch.finfo(dtype).max
    product_TE = compiled.multiply(rows_TD, weight_ED, None)
    assert product_TE[0].isnan().all()
    assert product_TE[1].isposinf().all()
    assert torch.equal(product_TE[2], torch.full((4,), 8.0, dtype=dtype))


def test_rows_that_lie_apart_in_memory_are_multiplied_too(compiled: Kernels) -> None:
    wide_TD, weight_ED = drawn(5, 32, dtype=torch.bfloat16), drawn(6, 16, dtype=torch.bfloat16)
    rows_TD = wide_TD[:, 8:24]
    assert_rounded_once(
        compiled.multiply(rows_TD, weight_ED, None), exact(rows_TD, weight_ED, None)
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [1, 3, 4, 33])
@pytest.mark.parametrize(("outputs", "inputs"), [(7, 16), (1000, 1025)])
@pytest.mark.parametrize("biased", [True, False])
def test_without_the_compiled_product_blocks_are_widened(
    dtype: torch.dtype,
    rows: int,
    outputs: int,
    inputs: int,
    biased: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_torch_has_instructions", lambda _dtype: False)
    monkeypatch.setattr(module, "compiled_kernels", lambda: None)
    rows_TD, weight_ED = drawn(rows, inputs, dtype=dtype), drawn(outputs, inputs, dtype=dtype)
    bias_E = drawn(outputs, dtype=dtype) if biased else None
    found_TE = linear(rows_TD, weight_ED, bias_E)
    assert found_TE.dtype == dtype
    assert_rounded_once(found_TE, exact(rows_TD, weight_ED, bias_E))


@pytest.fixture
def fresh_choice() -> Iterator[None]:
    module.cpu_products.cache_clear()
    yield
    module.cpu_products.cache_clear()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 5, 40])
@pytest.mark.usefixtures("fresh_choice")
def test_the_fastest_product_is_as_exact(
    dtype: torch.dtype, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(module.VARIABLE, "fastest")
    rows_TD, weight_ED = drawn(rows, 96, dtype=dtype), drawn(64, 96, dtype=dtype)
    assert_rounded_once(linear(rows_TD, weight_ED), exact(rows_TD, weight_ED, None))


@pytest.mark.parametrize("instructions", ["avx512_bf16", "amx_tile"])
@pytest.mark.usefixtures("fresh_choice")
def test_products_are_reproducible_by_default_unless_instructions_make_that_dear(
    instructions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(module.VARIABLE)
    for name in ("avx512_bf16", "amx_tile"):
        monkeypatch.setattr(torch.cpu, f"_is_{name}_supported", lambda: False)
    assert module.cpu_products() is module.CpuProducts.REPRODUCIBLE
    module.cpu_products.cache_clear()
    monkeypatch.setattr(torch.cpu, f"_is_{instructions}_supported", lambda: True)
    assert module.cpu_products() is module.CpuProducts.FASTEST


@pytest.mark.usefixtures("fresh_choice")
def test_an_unknown_choice_of_products_names_the_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(module.VARIABLE, "quick")
    with pytest.raises(module.UnknownProducts, match=r"'quick'.*'reproducible' or 'fastest'"):
        module.cpu_products()


def test_rows_that_learn_keep_their_gradient() -> None:
    rows_TD = drawn(3, 16, dtype=torch.float32).requires_grad_()
    torch.autograd.backward(linear(rows_TD, drawn(5, 16, dtype=torch.float32)).sum())
    assert rows_TD.grad is not None
