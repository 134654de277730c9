"""The random checkpoint that is served: of real size, made here, kept for the next run."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from runtime.models.tiny_checkpoint import EncodedDialogue, TinySizes, make_tiny_checkpoint

_EOS_ID = 1  # of make_tiny_checkpoint


def cached_checkpoint(folder: Path, sizes: TinySizes) -> Path:
    """Its directory within `folder`, one for each set of sizes; made when it is not there."""
    name = hashlib.sha256(repr(sizes).encode()).hexdigest()[:12]
    directory = folder / f"random-{name}"
    if not (directory / "config.json").exists():
        make_tiny_checkpoint(directory, sizes=sizes, seed=1, train=_never_ending)
        eos = json.loads((directory / "config.json").read_text())["eos_token_id"]
        if eos != _EOS_ID:
            raise RuntimeError(f"eos_token_id is {eos}, not {_EOS_ID}; answers may end early")
    return directory


def _never_ending(
    raw_config: Mapping[str, Any], tensors: dict[str, Tensor], examples: tuple[EncodedDialogue, ...]
) -> dict[str, Tensor]:
    """The end has a logit of 0, far below the largest of thousands: answers have full length."""
    tensors["lm_head.weight"][_EOS_ID] = 0
    return tensors
