"""Checkpoints whose linear layers are rounded to 4 or 8 bits, as AWQ, GPTQ and compressed-tensors
store them. Plain rounding: what is tested is that they are read, not how well they were made."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

GROUP, BLOCK = 32, 64
_MOST_FP8 = 448.0
_LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]

Tensors = dict[str, Tensor]
# A weight [out, in] -> its stored tensors by the ends of their names, and what they stand for.
Quantize = Callable[[Tensor], tuple[Tensors, Tensor]]


def _packed(codes_RC: Tensor, bits: int = 4) -> Tensor:
    """Codes [R, C] -> int32 [R, C * bits / 32], the first code in the lowest bits."""
    rows, columns = codes_RC.shape
    held = 32 // bits
    parts = codes_RC.to(torch.int64).reshape(rows, columns // held, held)
    words = sum(parts[:, :, place] << (bits * place) for place in range(held))
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def _symmetric(weight_OI: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Codes -8 to 7 by groups along the inputs, scales [O, I / GROUP], and what they stand for."""
    groups = weight_OI.reshape(len(weight_OI), -1, GROUP)
    scales = (groups.abs().amax(-1) / 7).clamp(min=1e-8).to(dtype).float()
    codes = (groups / scales[..., None]).round().clamp(-8, 7)
    return (
        codes.reshape(weight_OI.shape),
        scales,
        (codes * scales[..., None]).reshape(weight_OI.shape),
    )


def _w4a16(weight_OI: Tensor) -> tuple[Tensors, Tensor]:
    codes, scales, value = _symmetric(weight_OI, torch.bfloat16)
    return {
        "weight_packed": _packed(codes + 8),
        "weight_scale": scales.to(torch.bfloat16),
        "weight_shape": torch.tensor(weight_OI.shape),
    }, value


def _gptq(weight_OI: Tensor) -> tuple[Tensors, Tensor]:
    codes, scales, value = _symmetric(weight_OI, torch.float16)
    outputs, inputs = weight_OI.shape
    return {
        "qweight": _packed(codes + 8).T.contiguous(),
        "qzeros": _packed(torch.full((inputs // GROUP, outputs), 7)),  # one less than the zero
        "scales": scales.T.contiguous().to(torch.float16),
        "g_idx": (torch.arange(inputs) // GROUP).int(),
    }, value


def _awq(weight_OI: Tensor) -> tuple[Tensors, Tensor]:
    groups = weight_OI.reshape(len(weight_OI), -1, GROUP)
    low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
    scales = ((high - low) / 15).clamp(min=1e-8).to(torch.float16).float()
    zeros = (-low / scales).round().clamp(0, 15)
    codes = ((groups / scales[..., None]).round() + zeros[..., None]).clamp(0, 15)
    value = (codes - zeros[..., None]) * scales[..., None]

    def packed(codes_RC: Tensor) -> Tensor:
        parts = codes_RC.reshape(len(codes_RC), -1, 8)[:, :, _AWQ_ORDER]
        return _packed(parts.reshape(codes_RC.shape))

    return {
        "qweight": packed(codes.reshape(weight_OI.shape).T.contiguous()),
        "qzeros": packed(zeros.T.contiguous()),
        "scales": scales.T.contiguous().to(torch.float16),
    }, value.reshape(weight_OI.shape)


def _w8a8(weight_OI: Tensor) -> tuple[Tensors, Tensor]:
    scales = (weight_OI.abs().amax(1, keepdim=True) / 127).clamp(min=1e-8)
    codes = (weight_OI / scales).round().clamp(-128, 127)
    return {"weight": codes.to(torch.int8), "weight_scale": scales}, codes * scales


def _w8a16(weight_OI: Tensor) -> tuple[Tensors, Tensor]:
    tensors, value = _w8a8(weight_OI)
    return {
        "weight_packed": _packed(tensors["weight"].int() + 128, bits=8),
        "weight_scale": tensors["weight_scale"].to(torch.bfloat16),
        "weight_shape": torch.tensor(weight_OI.shape),
    }, value


def _fp8(weight_OI: Tensor) -> tuple[Tensors, Tensor]:
    scales = (weight_OI.abs().amax(1, keepdim=True) / _MOST_FP8).clamp(min=1e-8)
    codes = (weight_OI / scales).to(torch.float8_e4m3fn)
    return {"weight": codes, "weight_scale": scales}, codes.float() * scales


def _fp8_blocks(weight_OI: Tensor) -> tuple[Tensors, Tensor]:
    outputs, inputs = weight_OI.shape
    blocks = weight_OI.reshape(outputs // BLOCK, BLOCK, inputs // BLOCK, BLOCK)
    scales = (blocks.abs().amax((1, 3), keepdim=True) / _MOST_FP8).clamp(min=1e-8)
    codes = (blocks / scales).to(torch.float8_e4m3fn)
    return {
        "weight": codes.reshape(weight_OI.shape),
        "weight_scale_inv": scales[:, 0, :, 0].contiguous(),
    }, (codes.float() * scales).reshape(weight_OI.shape)


def _numbers(bits: int, strategy: str, **changes: Any) -> dict[str, Any]:
    return {"num_bits": bits, "type": "int", "symmetric": True, "strategy": strategy} | changes


def _compressed(
    format_name: str, weights: dict[str, Any], activations: dict[str, Any] | None
) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations}
    return {
        "quant_method": "compressed-tensors",
        "format": format_name,
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {"group_0": group},
    }


KINDS: dict[str, tuple[Quantize, dict[str, Any]]] = {
    "w4a16": (
        _w4a16,
        _compressed("pack-quantized", _numbers(4, "group", group_size=GROUP), None),
    ),
    "gptq": (
        _gptq,
        {
            "quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False, "sym": True,
            "lm_head": False, "checkpoint_format": "gptq",
        },
    ),
    "awq": (
        _awq,
        {
            "quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True,
            "version": "gemm",
        },
    ),
    "w8a8": (
        _w8a8,
        _compressed(
            "int-quantized", _numbers(8, "channel"), _numbers(8, "token", dynamic=True)
        ),
    ),
    "fp8": (
        _fp8,
        _compressed(
            "float-quantized",
            _numbers(8, "channel", type="float"),
            _numbers(8, "token", type="float", dynamic=True),
        ),
    ),
}  # fmt: skip
# vLLM has kernels of these on some GPUs only, and on CPUs with AMX
ELSEWHERE: dict[str, tuple[Quantize, dict[str, Any]]] = {
    "w8a16": (_w8a16, _compressed("pack-quantized", _numbers(8, "channel"), None)),
    "fp8 blocks": (
        _fp8_blocks,
        {
            "quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
            "weight_block_size": [BLOCK, BLOCK],
        },
    ),
}  # fmt: skip


def quantize(source: Path, folder: Path, kind: str) -> Path:
    """Write the checkpoint at `source` with quantised layers into `folder`.

    Returns a folder beside it with the same weights rounded, but not packed.
    """
    make, told = (KINDS | ELSEWHERE)[kind]
    rounded = folder.parent / f"{folder.name}-rounded"
    config = json.loads((source / "config.json").read_text())
    stored: Tensors = {}
    values: Tensors = {}
    for name, tensor in load_file(source / "model.safetensors").items():
        base = name.removesuffix(".weight")
        if base.rpartition(".")[2] in _LINEAR:
            tensors, value = make(tensor.float())
            stored |= {f"{base}.{end}": part for end, part in tensors.items()}
            values[name] = value.to(tensor.dtype)
        else:
            stored[name] = values[name] = tensor
    for place, tensors, changes in (
        (folder, stored, {"quantization_config": told}),
        (rounded, values, {}),
    ):
        shutil.copytree(source, place)
        save_file(tensors, place / "model.safetensors", metadata={"format": "pt"})
        (place / "config.json").write_text(json.dumps(config | changes))
    return rounded


def pack_experts(folder: Path) -> None:
    """Store the experts of a gpt-oss checkpoint as MXFP4 has them: codes and scales alone."""
    config = json.loads((folder / "config.json").read_text())
    for file in folder.glob("*.safetensors"):
        packed: Tensors = {}
        for name, tensor in load_file(file).items():
            if not name.endswith(("gate_up_proj", "down_proj")):
                packed[name] = tensor
                continue
            experts, inputs, outputs = tensor.shape
            shape = (experts, outputs, inputs // 32)
            packed[f"{name}_blocks"] = torch.zeros(*shape, 16, dtype=torch.uint8)
            packed[f"{name}_scales"] = torch.full(shape, 127, dtype=torch.uint8)
        save_file(packed, file, metadata={"format": "pt"})
    (folder / "model.safetensors.index.json").unlink(missing_ok=True)
    told = {"quant_method": "mxfp4", "modules_to_not_convert": ["self_attn", "router", "lm_head"]}
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": told}))
