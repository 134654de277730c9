"""What type of number the device of a stage computes in."""

import torch

from runtime.protocol.engines import ComputeDtype

_COMPUTES_BFLOAT16 = (8, 0)  # GPUs from this capability on; those before emulate it, slowly


def compute_dtype(chosen: ComputeDtype, stored: str, device: torch.device) -> str:
    """For a checkpoint whose type is `stored`: the chosen one, or the one the device has."""
    if chosen is not ComputeDtype.AUTO:
        return chosen.value
    is_lacking = (
        device.type == "cuda" and torch.cuda.get_device_capability(device) < _COMPUTES_BFLOAT16
    )
    return "float16" if stored == "bfloat16" and is_lacking else stored
