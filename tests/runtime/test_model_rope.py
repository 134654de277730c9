"""Rotary frequencies against those of `transformers`."""

from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from runtime.models.checkpoint import CheckpointError
from runtime.models.rope import parse_rope

HEAD = 32
SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"factor": 3.0},
    "dynamic": {"factor": 3.0},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 512,
    },
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 512},
    "yarn with other borders": {
        "rope_type": "yarn",
        "factor": 4.0,
        "beta_fast": 16,
        "beta_slow": 2,
        "truncate": False,
        "original_max_position_embeddings": 256,
    },
    "yarn with mscale": {
        "rope_type": "yarn",
        "factor": 4.0,
        "mscale": 0.8,
        "mscale_all_dim": 0.5,
        "original_max_position_embeddings": 256,
    },
    "yarn with attention factor": {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.3},
}


@pytest.mark.parametrize("name", SCALINGS)
@pytest.mark.parametrize("keys", ["new", "old"])
def test_frequencies_and_amplitude_are_those_of_transformers(name: str, keys: str) -> None:
    scaling = {"rope_type": name} | SCALINGS[name]
    config = LlamaConfig(
        hidden_size=2 * HEAD,
        num_attention_heads=2,
        max_position_embeddings=2048,
        rope_parameters=scaling | {"rope_theta": 7e4},
    )
    expected_F, amplitude = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](config, torch.device("cpu"))
    raw: dict[str, Any] = {"max_position_embeddings": 2048}
    if keys == "new":
        raw["rope_parameters"] = scaling | {"rope_theta": 7e4}
    else:
        raw |= {"rope_theta": 7e4, "rope_scaling": dict(scaling)}
        raw["rope_scaling"]["type"] = raw["rope_scaling"].pop("rope_type")
    rope = parse_rope(raw, HEAD)
    torch.testing.assert_close(torch.tensor(rope.frequencies), expected_F)
    assert rope.amplitude == pytest.approx(amplitude)


@pytest.mark.parametrize(
    ("rope", "message"),
    [
        ({"rope_type": "longrope"}, "rope_type is 'longrope'.*supported: default, linear"),
        ({"rope_type": "linear"}, "linear rope scaling lacks 'factor'"),
        ({"rope_type": "llama3", "factor": "much"}, "rope parameters: could not convert"),
    ],
)
def test_a_rope_that_cannot_be_made_is_refused_with_the_value(
    rope: dict[str, Any], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        parse_rope({"rope_parameters": rope, "max_position_embeddings": 2048}, HEAD)
