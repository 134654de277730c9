"""What is asked of every model, whichever code runs it: its sizes, and its type in torch."""

from dataclasses import dataclass, fields
from typing import Any

import torch

from runtime.checkpoints.decoder_sizes import DecoderSizes

DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig(DecoderSizes):
    """Sizes of a decoder that is to be run."""

    @property
    def dtype(self) -> torch.dtype:
        """The type of weights and activations."""
        return DTYPES[self.dtype_name]


def fields_of(sizes: DecoderSizes) -> dict[str, Any]:
    """By name, for a config with more of them."""
    return {each.name: getattr(sizes, each.name) for each in fields(sizes)}
