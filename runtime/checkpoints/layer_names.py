"""Which layer a tensor of a checkpoint belongs to, by its name. Loads no torch."""

import re

_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.")
_EMBEDDINGS = ("embed_tokens", "word_embeddings", "wte")
_HEADS = ("lm_head", "output_layer")


def layer_of(name: str) -> int | None:
    """The number of the layer; None for the embedding, the output head and the last norm."""
    found = _LAYER.search(name)
    return None if found is None else int(found[1])


def is_wanted(name: str, layers: range, *, num_layers: int, is_tied: bool) -> bool:
    """True if a stage with `layers` needs the tensor.

    The embedding belongs to layer 0, and to the last layer where the head is tied to it; the head
    belongs to the last layer. Norms outside the layers are small: every stage takes them.
    """
    layer = layer_of(name)
    if layer is not None:
        return layer in layers
    has_last = layers.stop == num_layers
    if any(part in name for part in _EMBEDDINGS):
        return layers.start == 0 or (is_tied and has_last)
    if any(part in name for part in _HEADS):
        return has_last
    return True
