"""Layers loaded in parts give what they give when they are loaded at once."""

from functools import reduce
from pathlib import Path

import pytest
import torch
from test_decoder import SIZES, causal, load

from runtime.models.compact_decoder import CompactDecoder
from runtime.models.tiny_checkpoint import make_tiny_checkpoint

IDS_T = torch.arange(5, 45)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    make_tiny_checkpoint(tmp_path, sizes=SIZES, seed=2)
    return tmp_path


def logits_of(decoder: CompactDecoder) -> torch.Tensor:
    with torch.inference_mode():
        rotation = decoder.rotation(torch.arange(len(IDS_T)))
        hidden_TD = decoder.embed(IDS_T)
        for layer in sorted(decoder.held):
            hidden_TD = decoder.run_layer(layer, hidden_TD, rotation=rotation, attend=causal)
        return decoder.logits(hidden_TD)


def test_parts_in_any_order_are_the_whole_model(checkpoint: Path) -> None:
    whole = logits_of(load(checkpoint, 0, 5))
    parts = [load(checkpoint, 3, 5), load(checkpoint, 0, 2), load(checkpoint, 2, 3)]
    assert torch.equal(logits_of(reduce(CompactDecoder.joined, parts)), whole)


def test_what_is_cut_off_is_missed_and_the_rest_is_as_it_was(checkpoint: Path) -> None:
    whole = load(checkpoint, 0, 5)
    cut = whole.only(range(2)).joined(whole.only(range(2, 5)))
    assert torch.equal(logits_of(cut), logits_of(whole))
    middle = whole.only({1, 3})
    assert set(middle.held) == {1, 3}
    assert middle.layers[3] is whole.layers[3]
    with pytest.raises(ValueError, match="no embedding"):
        middle.embed(IDS_T)
    with pytest.raises(ValueError, match="no head"):
        middle.logits(torch.zeros(1, 32))


def test_a_layer_is_held_once(checkpoint: Path) -> None:
    with pytest.raises(ValueError, match="held twice"):
        load(checkpoint, 0, 2).joined(load(checkpoint, 1, 3))
