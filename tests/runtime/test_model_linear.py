"""The product of rows and weights in half precision, whatever the CPU has for it."""

import pytest
import torch

from runtime.models import linear as module
from runtime.models.linear import linear


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [1, 3, 4, 33])
@pytest.mark.parametrize(("outputs", "inputs"), [(7, 16), (1000, 1025)])
@pytest.mark.parametrize("biased", [True, False])
def test_the_widened_product_is_the_exact_one_rounded_once(
    dtype: torch.dtype,
    rows: int,
    outputs: int,
    inputs: int,
    biased: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_multiplies_natively", lambda _dtype: False)
    generator = torch.Generator().manual_seed(0)
    rows_TD = torch.randn(rows, inputs, generator=generator).to(dtype)
    weight_ED = torch.randn(outputs, inputs, generator=generator).to(dtype)
    bias_E = torch.randn(outputs, generator=generator).to(dtype) if biased else None
    exact_TE = rows_TD.double() @ weight_ED.double().T
    if bias_E is not None:
        exact_TE += bias_E.double()
    found_TE = linear(rows_TD, weight_ED, bias_E)
    assert found_TE.dtype == dtype
    rounding = torch.finfo(dtype).eps
    torch.testing.assert_close(found_TE.double(), exact_TE, rtol=rounding, atol=rounding)


def test_single_precision_is_left_to_torch() -> None:
    rows_TD, weight_ED = torch.randn(9, 8), torch.randn(5, 8)
    expected_TE = torch.nn.functional.linear(rows_TD, weight_ED)
    assert torch.equal(linear(rows_TD, weight_ED), expected_TE)
