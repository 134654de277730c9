"""The types of a stage's numbers: what its device computes in, and what its rows are sent in."""

import torch

from runtime.checkpoints.decoder_sizes import DecoderSizes
from runtime.models.model_config import DTYPES
from runtime.protocol.control import StageAssignment
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


def wire_dtype(assignment: StageAssignment, checkpoint: DecoderSizes) -> torch.dtype:
    """Of the rows that stages exchange, the same for all of a deployment."""
    return DTYPES[assignment.wire_dtype or checkpoint.dtype_name]
