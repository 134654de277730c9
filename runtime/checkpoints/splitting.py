"""Why a model cannot be cut into stages, by its config.json alone. Loads no torch.

Stages exchange one row of hidden values per token. Each layer keeps pages of keys and values, and
the pages of all layers have one size.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from runtime.protocol.translated import gettext_noop as _

INSTANCES = _("run it as instances, on machines that hold all of it")

# kinds of layers whose state is pages of keys and values
_PAGED = {"full_attention", "sliding_attention", "chunked_attention", "attention"}
_KINDS = ("layer_types", "layers_block_type", "block_types", "hybrid_override_pattern")
# keys of layers that keep a state; they say so only where a config lists no kinds
_STATES = (
    "mamba_d_state", "ssm_state_size", "state_size", "linear_num_value_heads", "linear_attn_config",
    "conv_L_cache", "attn_layer_period", "attn_type_list", "attention_hidden_size",
)  # fmt: skip
# what some layers have in place of head_dim, num_key_value_heads
_OTHER_HEADS = (
    ("swa_head_dim", "swa_num_key_value_heads"),
    ("global_head_dim", "num_global_key_value_heads"),
)
_BY_LAYER = ("head_dim", "num_key_value_heads", "block_configs")
# learned positions are added to the embedding; a stage embeds tokens without them
_LEARNED_POSITIONS = {
    "gpt2", "gpt-sw3", "gpt_bigcode", "gpt_neo", "opt", "biogpt", "xglm", "openai-gpt",
}  # fmt: skip


def why_no_decoder(config: Mapping[str, Any]) -> str | None:
    """Why a model is no decoder of text alone; None if it is one."""
    if config.get("is_encoder_decoder"):
        return "it is an encoder-decoder, and a pipeline has one direction"
    if any(config.get(key) for key in ("vision_config", "audio_config", "text_config")):
        return "it has parts for pictures or sound; choose the text-only checkpoint of the family"
    return None


def why_not_split(config: Mapping[str, Any]) -> str | None:
    """Why no stage can run a model with this config.json; None if nothing in it forbids that.

    Completes the sentence "the model cannot be cut into stages: ...".
    """
    return why_no_decoder(config) or next(_reasons(config), None)


def _reasons(config: Mapping[str, Any]) -> Iterator[str]:
    kinds = next((config[key] for key in _KINDS if config.get(key)), None)
    if kinds is None:
        states = [key for key in _STATES if config.get(key)]
        if states:
            yield f"its layers keep a state ({states[0]}), and a stage keeps keys and values only"
    else:
        named = map(str, kinds) if isinstance(kinds, list | tuple) else [str(kinds)]
        if strange := ", ".join(sorted(set(named) - _PAGED)):
            yield (
                f"it has layers of kind {strange[:120]}, and a stage keeps keys and values of "
                "each layer, nothing else"
            )
    if config.get("num_kv_shared_layers"):
        yield "its last layers read the KV cache of earlier ones, which may be in another stage"
    if config.get("hidden_size_per_layer_input"):
        yield "each of its layers needs the token ids, and stages exchange hidden rows only"
    if config.get("index_topk") or config.get("compress_ratios") or config.get("compress_rates"):
        yield "its layers keep an index beside keys and values, so their pages differ in size"
    if config.get("model_type") == "longcat_flash":
        yield "each of its layers has two KV caches"
    if config.get("model_type") in _LEARNED_POSITIONS:
        yield "it adds positions to its token embeddings, and a stage embeds tokens without them"
    if any(isinstance(config.get(key), list) for key in _BY_LAYER) or _has_other_heads(config):
        yield "its layers have keys and values of different sizes, and pages have one size"


def _has_other_heads(config: Mapping[str, Any]) -> bool:
    size, count = config.get("head_dim"), config.get("num_key_value_heads")
    pairs = [(size, count)] + [
        (config.get(other_size) or size, config.get(other_count) or count)
        for other_size, other_count in _OTHER_HEADS
    ]
    # two heads of 64 take the pages of one of 128
    return len({size * count for size, count in pairs if size and count}) > 1
