"""What `transformers` knows of a model that is none of our own families, and whether the bridge
can run it. Loads transformers."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn

from runtime.checkpoints.decoder_sizes import parse_dtype_name
from runtime.checkpoints.model_facts import Entries, sizes_of
from runtime.checkpoints.splitting import why_no_decoder
from runtime.models.checkpoint import CheckpointError
from runtime.models.model_config import DTYPES, ModelConfig, fields_of

_RUNNABLE_LAYERS = {"full_attention", "sliding_attention"}


class UnsupportedModel(CheckpointError):
    """An architecture that the bridge cannot run; the message names what is in the way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeConfig(ModelConfig):
    """A model whose layers are those of `transformers`. `hf` is its own config object, `layers`
    the name of the list of layers in its skeleton."""

    hf: Any
    layers: str

    def computed_in(self, dtype_name: str) -> Self:
        """See `DecoderSizes`."""
        hf = copy.deepcopy(self.hf)
        hf.dtype = DTYPES[dtype_name]
        return replace(ModelConfig.computed_in(self, dtype_name), hf=hf)


def read_bridge_config(
    checkpoint: Path, raw: Mapping[str, Any], entries: Callable[[], Entries]
) -> BridgeConfig:
    """`raw` is the content of config.json, `entries` are of all tensors.

    Raises CheckpointError, UnsupportedModel.
    """
    path = checkpoint / "config.json"
    family = raw.get("model_type")
    dtype_name = parse_dtype_name(raw, path=path)
    try:
        import transformers
    except ImportError:
        raise CheckpointError(
            f"{path}: model_type is {family!r}, which needs the transformers package; "
            "run: pip install 'helixweb[bridge]'"
        ) from None
    _check_family(transformers, path, raw)
    try:
        hf = transformers.AutoConfig.from_pretrained(checkpoint, trust_remote_code=False)
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise UnsupportedModel(
            f"{path}: transformers {transformers.__version__} cannot read this {family!r} "
            f"config: {error}"
        ) from error
    hf.dtype = DTYPES[dtype_name]
    _check_layers(path, hf)
    layers = _layers(path, build_skeleton(hf), hf)
    # its own names and defaults, of what config.json does not say
    sizes = sizes_of({**raw, **hf.to_dict()}, entries, source=path)
    return BridgeConfig(
        **{**fields_of(sizes), "intermediate_size": _intermediate(hf)}, hf=hf, layers=layers
    )


def build_skeleton(hf: Any) -> Any:
    """The whole model without its weights: parameters on the meta device, which takes no memory,
    small constant buffers such as rotary frequencies in memory on CPU."""
    import transformers

    auto: Any = transformers.AutoModelForCausalLM
    with torch.device("meta"):
        model = auto.from_config(hf, dtype=hf.dtype)
    owners = {}
    for name, buffer in model.named_non_persistent_buffers():
        owner, _, attribute = name.rpartition(".")
        module = model.get_submodule(owner)
        setattr(module, attribute, torch.empty_like(buffer, device="cpu"))
        owners[owner] = module
    with torch.no_grad():
        for module in owners.values():
            model._init_weights(module)
    return model.eval()


def _check_family(transformers: Any, path: Path, raw: Mapping[str, Any]) -> None:
    family = raw.get("model_type")
    known = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    if no_decoder := why_no_decoder(raw):
        reason = no_decoder
    elif "auto_map" in raw and family not in known:
        reason = "its code comes with the checkpoint, and no foreign code is run"
    elif family not in known:
        reason = f"transformers {transformers.__version__} has no causal language model of it"
    else:
        return
    raise UnsupportedModel(f"{path}: model_type {family!r} cannot be run: {reason}")


def _check_layers(path: Path, hf: Any) -> None:
    family = hf.model_type
    strange = sorted(set(getattr(hf, "layer_types", None) or []) - _RUNNABLE_LAYERS)
    if strange:
        raise UnsupportedModel(
            f"{path}: model_type {family!r} cannot be run: it has layers of kind {strange}, which "
            "keep something else than keys and values (runnable: "
            f"{', '.join(sorted(_RUNNABLE_LAYERS))})"
        )


def _layers(path: Path, model: Any, hf: Any) -> str:
    """Name of the one list of layers."""
    if getattr(model, "_is_stateful", False):
        raise UnsupportedModel(
            f"{path}: model_type {hf.model_type!r} cannot be run: it carries a state from token "
            "to token, not keys and values"
        )
    lists: list[str] = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList)
        and len(module) == hf.num_hidden_layers
        and name.count(".") == 1
    ]
    if len(lists) != 1 or not getattr(model, "_supports_attention_backend", False):
        raise UnsupportedModel(
            f"{path}: model_type {hf.model_type!r} cannot be run: its layers are no one list "
            f"(found {lists}) or take no attention function from outside"
        )
    return lists[0]


def _intermediate(hf: Any) -> int:
    """Widest MLP activations of one row: a dense layer's, or those of the experts it is sent to."""
    dense = getattr(hf, "intermediate_size", None) or 4 * hf.hidden_size
    experts = getattr(hf, "num_experts_per_tok", None) or 1
    return max(int(dense), experts * int(getattr(hf, "moe_intermediate_size", None) or dense))
