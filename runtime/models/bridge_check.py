"""Holds bridged layers against the model's own forward, once, when a stage has loaded them.

A family that `transformers` adds tomorrow may attend in a way that the bridge knows nothing of;
then the stage refuses to run it instead of giving wrong answers.

Legend: T tokens, D hidden.
"""

import torch
from torch import Tensor, nn

from runtime.models.bridge_config import UnsupportedModel
from runtime.models.decoder import Attend, AttentionRule
from runtime.models.dense_attention import attend_densely
from runtime.models.hf_bridge import BridgedDecoder

_TOKENS = 6
# share of the largest activation by which the two ways of attending may differ
_TOLERANCES = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 6e-2}


@torch.inference_mode()
def check_bridge(decoder: BridgedDecoder) -> None:
    """Raises UnsupportedModel when a held layer gives other rows than in its own model, attends
    over other heads than the config says, or when tokens are embedded by position."""
    config = decoder.config
    name = type(decoder.model).__name__
    generator = torch.Generator().manual_seed(0)
    rows_TD = torch.randn(_TOKENS, config.hidden_size, generator=generator)
    rows_TD = rows_TD.to(device=decoder.device, dtype=config.dtype)
    positions_T = torch.arange(_TOKENS, device=decoder.device)
    try:
        rotation = decoder.rotation(positions_T)
        hidden_TD = rows_TD
        for layer in range(decoder.first, decoder.end):
            hidden_TD = decoder.run_layer(
                layer, hidden_TD, rotation=rotation, attend=_checked(decoder, layer)
            )
    except (RuntimeError, TypeError) as error:
        raise UnsupportedModel(f"{name}: a layer cannot be run by itself: {error}") from error
    expected_TD = _own_forward(decoder, rows_TD, positions_T)
    allowed = float(expected_TD.abs().max()) * _TOLERANCES[config.dtype]
    differs = float((hidden_TD - expected_TD).abs().max())
    if not differs <= allowed:
        raise UnsupportedModel(
            f"{name}: layers [{decoder.first}, {decoder.end}) give rows that differ by {differs} "
            f"from those of the model's own forward (allowed: {allowed}); the bridge does not know "
            "how this family attends"
        )
    if decoder.first == 0:
        _check_embedding(decoder)


def _checked(decoder: BridgedDecoder, layer: int) -> Attend:
    config = decoder.config
    name = type(decoder.model).__name__
    kinds = getattr(config.hf, "layer_types", None)

    def attend(
        number: int, query_TNH: Tensor, key_TKH: Tensor, value_TKH: Tensor, rule: AttentionRule, /
    ) -> Tensor:
        found = {
            "query": tuple(query_TNH.shape[1:]),
            "key": tuple(key_TKH.shape[1:]),
            "value": tuple(value_TKH.shape[1:]),
        }
        kv_shape = (config.num_kv_heads, config.head_size)
        wanted = {"query": (config.num_heads, config.head_size), "key": kv_shape, "value": kv_shape}
        if found != wanted:
            raise UnsupportedModel(
                f"{name}: layer {layer} attends with heads {found}; one KV cache for all layers "
                f"holds {wanted}"
            )
        if kinds and (kinds[layer] == "sliding_attention") != (rule.window is not None):
            raise UnsupportedModel(
                f"{name}: layer {layer} is of kind {kinds[layer]} but asks for a window of "
                f"{rule.window}"
            )
        return attend_densely(number, query_TNH, key_TKH, value_TKH, rule)

    return attend


def _own_forward(decoder: BridgedDecoder, rows_TD: Tensor, positions_T: Tensor) -> Tensor:
    """Rows behind the held layers, with rows_TD before them, by the model's own forward."""
    model, config = decoder.model, decoder.config
    slots: nn.ModuleList = model.get_submodule(config.layers)
    for layer in range(decoder.first, decoder.end):
        slots[layer] = decoder.layers[layer - decoder.first]
    entry = decoder.layers[0].register_forward_pre_hook(
        lambda _module, arguments: (rows_TD[None], *arguments[1:])
    )
    behind: list[Tensor] = []
    leave = decoder.layers[-1].register_forward_hook(
        lambda _module, _arguments, out: behind.append(out[0] if isinstance(out, tuple) else out)
    )
    served = model.config._attn_implementation
    model.config._attn_implementation = "eager"
    try:
        model.base_model(
            inputs_embeds=torch.zeros_like(rows_TD)[None],
            position_ids=positions_T[None],
            use_cache=False,
        )
    finally:
        model.config._attn_implementation = served
        entry.remove()
        leave.remove()
        for layer in range(decoder.first, decoder.end):
            slots[layer] = decoder.stand_ins[layer]
    return behind[0][0]


def _check_embedding(decoder: BridgedDecoder) -> None:
    """The first stage embeds rows without knowing their positions."""
    ids_1T = torch.ones(1, _TOKENS, dtype=torch.int64, device=decoder.device)
    rows = []
    for start in (0, 1):
        positions_T = torch.arange(start, start + _TOKENS, device=decoder.device)
        decoder.model.base_model(input_ids=ids_1T, position_ids=positions_T[None], use_cache=False)
        rows.append(decoder.stand_ins[0].hidden)
    if rows[0] is None or rows[1] is None or not torch.equal(rows[0], rows[1]):
        raise UnsupportedModel(
            f"{type(decoder.model).__name__} adds positions to its token embeddings; a stage "
            "embeds tokens without them"
        )
