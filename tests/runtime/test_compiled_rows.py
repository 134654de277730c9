"""Norm, gate and rotary embedding by the kernels, held against torch's own."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from runtime.models import layers
from runtime.models.compiled.library import compiled_kernels
from runtime.models.layers import gated_mlp, rms_norm, rotate

DTYPES = [torch.float32, torch.bfloat16, torch.float16]

pytestmark = pytest.mark.skipif(
    compiled_kernels() is None, reason="the kernels were not built here, or the CPU has no AVX2"
)


@pytest.fixture(autouse=True, params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


def drawn(*shape: int, dtype: torch.dtype, spread: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return (torch.randn(*shape, generator=generator) * spread).to(dtype)


def assert_next_to(found: Tensor, expected: Tensor) -> None:
    """Sums in another order may round elsewhere: by one step, which the product then rounds too."""
    step = max(2 * torch.finfo(found.dtype).eps, 1e-6)
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, rtol=step, atol=step * 1e-2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 3, 33])
@pytest.mark.parametrize("width", [8, 40, 1024])
def test_the_norm_is_torchs(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, rows: int, width: int
) -> None:
    hidden_TD = drawn(rows, width, dtype=dtype, spread=3.0)
    weight_D = drawn(width, dtype=dtype)
    found_TD = rms_norm(hidden_TD, weight_D, eps=1e-5)
    monkeypatch.setattr(layers, "compiled_kernels", lambda: None)
    assert_next_to(found_TD, rms_norm(hidden_TD, weight_D, eps=1e-5))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 5, 32])
def test_rotated_heads_are_torchs_to_the_bit(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, rows: int
) -> None:
    fused_TAH = drawn(rows, 6, 32, dtype=dtype)
    heads_TNH = fused_TAH[:, 1:5]  # rows do not follow each other
    cos_TH, sin_TH = drawn(rows, 32, dtype=dtype), drawn(rows + 1, 32, dtype=dtype)[:rows]
    found_TNH = rotate(heads_TNH, cos_TH, sin_TH)
    monkeypatch.setattr(layers, "compiled_kernels", lambda: None)
    assert torch.equal(found_TNH, rotate(heads_TNH, cos_TH, sin_TH))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_gate_is_torchs(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    identity_II = torch.eye(64).to(dtype)
    both_TI = drawn(33, 128, dtype=dtype, spread=4.0)
    both_TI[0, :4] = torch.tensor([0.0, -0.0, 60.0, -60.0])
    found_TI = compiled_gate(both_TI)
    expected_TI = functional.silu(both_TI[:, :64]) * both_TI[:, 64:]
    assert_next_to(found_TI, expected_TI)
    gate_up_ID = drawn(128, 16, dtype=dtype)
    hidden_TD = drawn(9, 16, dtype=dtype)
    whole_TI = gated_mlp(hidden_TD, gate_up_ID, identity_II)
    monkeypatch.setattr(layers, "compiled_kernels", lambda: None)
    assert_next_to(whole_TI, gated_mlp(hidden_TD, gate_up_ID, identity_II))


def compiled_gate(both_TI: Tensor) -> Tensor:
    kernels = compiled_kernels()
    assert kernels is not None
    return kernels.silu_gate(both_TI)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_no_number_is_not_hidden(bad: float) -> None:
    hidden_TD = drawn(2, 16, dtype=torch.bfloat16)
    hidden_TD[0, 3] = bad
    normed_TD = rms_norm(hidden_TD, drawn(16, dtype=torch.bfloat16), eps=1e-5)
    assert normed_TD[0].isnan().any()
    assert not normed_TD[1].isnan().any()
    gated_TI = compiled_gate(hidden_TD)
    assert not gated_TI[0, 3].isfinite()


def test_weights_that_learn_keep_their_gradient() -> None:
    weight_D = drawn(16, dtype=torch.float32).requires_grad_()
    normed_TD = rms_norm(drawn(2, 16, dtype=torch.float32), weight_D, eps=1e-5)
    torch.autograd.backward(normed_TD.sum())
    assert weight_D.grad is not None
