"""Runs layers of `transformers` under our stage interface, with the engine's paged attention.

The model's own forward is walked with stand-ins in its layer slots: what it hands to the first
slot is the embedding, what it hands to each slot besides (rotary angles, and nothing else that
differs between rows) is a step's rotation, and what the last slot returns comes out as logits. So
scaled embeddings, several rotations or capped logits need no case of their own. Loads
transformers.

Legend: T tokens in the step, D hidden, N heads, K KV heads, H head size, V vocabulary.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from runtime.models.bridge_config import BridgeConfig, UnsupportedModel
from runtime.models.decoder import Attend, AttentionRule, Rotation
from runtime.models.linear import linear

ATTENTION = "helix_paged"
# differ between rows, and are known from the rotation
_ROW_ARGUMENTS = ("position_embeddings", "position_ids", "cache_position")


@dataclass(slots=True, kw_only=True)
class _Call:
    """What an attention module of `layer` reaches while its layer runs."""

    layer: int
    attend: Attend
    attended: int = 0


def _paged_attention(
    module: nn.Module,
    query_1NTH: Tensor,
    key_1KTH: Tensor,
    value_1KTH: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    helix_call: _Call,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """The attention function that `transformers` layers call; attended [1, T, N, H]."""
    sinks = others.get("s_aux")
    if attention_mask is not None or sinks is not None:
        raise UnsupportedModel(
            f"{type(module).__name__} attends by a mask or with sinks of its own, which paged "
            "attention does not know"
        )
    helix_call.attended += 1
    attended_TNH = helix_call.attend(
        helix_call.layer,
        query_1NTH[0].transpose(0, 1),
        key_1KTH[0].transpose(0, 1),
        value_1KTH[0].transpose(0, 1),
        AttentionRule(scale=scaling, window=sliding_window, softcap=softcap),
    )
    return attended_TNH[None], None


AttentionInterface.register(ATTENTION, _paged_attention)


class StandIn(nn.Module):
    """Sits where a layer was: notes what it is given, gives back `answer` or what it got."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self._names = list(inspect.signature(layer.forward).parameters)
        self.hidden: Tensor | None = None
        self.arguments: dict[str, Any] = {}
        self.answer: Tensor | None = None
        for name in ("attention_type", "layer_type", "is_sliding"):  # some forwards look at these
            if hasattr(layer, name):
                setattr(self, name, getattr(layer, name))

    def forward(self, hidden: Tensor, *positional: Any, **named: Any) -> Tensor:
        self.hidden = hidden
        self.arguments = dict(zip(self._names[1:], positional, strict=False)) | named
        return hidden if self.answer is None else self.answer


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgedDecoder:
    """A `Decoder`. `model` is the skeleton, its layer slots filled with `stand_ins`; weights that
    belong to other stages are on the meta device."""

    config: BridgeConfig
    first: int
    layers: tuple[nn.Module, ...]
    model: Any
    stand_ins: tuple[StandIn, ...]
    device: torch.device
    constants: tuple[Mapping[str, Any], ...]  # per model layer: arguments alike for all rows
    kinds: tuple[str, ...]  # per model layer: the rotation it takes

    @property
    def end(self) -> int:
        return self.first + len(self.layers)

    @property
    def held(self) -> range:
        return range(self.first, self.end)

    def embed(self, token_ids_T: Tensor) -> Tensor:
        """See `Decoder`. Raises ValueError where there is no embedding."""
        if self.first > 0:
            raise ValueError(f"layers [{self.first}, {self.end}) have no embedding: not the first")
        positions_T = torch.zeros_like(token_ids_T)
        self._walk(input_ids=token_ids_T[None], position_ids=positions_T[None])
        hidden_1TD = self.stand_ins[0].hidden
        if hidden_1TD is None:
            raise UnsupportedModel(f"{type(self.model).__name__} does not call its first layer")
        return hidden_1TD[0].to(self.config.dtype)

    def rotation(self, positions_T: Tensor) -> Rotation:
        """See `Decoder`."""
        dummy_1TD = torch.zeros(
            1,
            len(positions_T),
            self.config.hidden_size,
            dtype=self.config.dtype,
            device=self.device,
        )
        self._walk(inputs_embeds=dummy_1TD, position_ids=positions_T[None])
        angles = {}
        for kind, stand_in in zip(self.kinds, self.stand_ins, strict=True):
            if kind not in angles and stand_in.arguments.get("position_embeddings") is not None:
                cos_1TH, sin_1TH = stand_in.arguments["position_embeddings"]
                angles[kind] = (cos_1TH[0], sin_1TH[0])
        return Rotation(positions_T=positions_T, angles=angles)

    def run_layer(
        self, layer: int, hidden_TD: Tensor, *, rotation: Rotation, attend: Attend
    ) -> Tensor:
        """See `Decoder`. Raises UnsupportedModel for a layer that does not attend just once."""
        call = _Call(layer=layer, attend=attend)
        constants = self.constants[layer]
        rows: dict[str, Any] = {"position_ids": rotation.positions_T[None]}
        if self.kinds[layer] in rotation.angles:
            cos_TH, sin_TH = rotation.angles[self.kinds[layer]]
            rows["position_embeddings"] = (cos_TH[None], sin_TH[None])
        out = self.layers[layer - self.first](
            hidden_TD[None], **(dict(constants) | rows | {"helix_call": call})
        )
        if call.attended != 1:
            raise UnsupportedModel(
                f"layer {layer} of {type(self.model).__name__} attended {call.attended} times "
                "through the attention function; the bridge needs exactly one"
            )
        hidden_1TD: Tensor = out[0] if isinstance(out, tuple) else out
        return hidden_1TD[0]

    def logits(self, hidden_TD: Tensor) -> Tensor:
        """See `Decoder`. Raises ValueError where there is no head."""
        if self.end != self.config.num_layers:
            raise ValueError(f"layers [{self.first}, {self.end}) have no head: not the last")
        last = self.stand_ins[-1]
        last.answer = hidden_TD[None]
        try:
            out = self.model(
                inputs_embeds=torch.zeros_like(hidden_TD)[None],
                position_ids=torch.arange(len(hidden_TD), device=self.device)[None],
                use_cache=False,
            )
        finally:
            last.answer = None
        logits_TV: Tensor = out.logits[0].float()
        return logits_TV

    def repeating(self, count: int) -> "BridgedDecoder":
        return replace(
            self,
            layers=self.layers[:1] * count,
            constants=self.constants[:1] * max(count, len(self.constants)),
            kinds=self.kinds[:1] * max(count, len(self.kinds)),
        )

    def _walk(self, **arguments: Tensor) -> None:
        """The model's own forward, up to the last layer slot and its final norm."""
        self.model.base_model(**arguments, use_cache=False)


def bridge(
    config: BridgeConfig, model: Any, *, first: int, end: int, device: torch.device
) -> BridgedDecoder:
    """A BridgedDecoder around a skeleton whose layers [first, end) are loaded.

    Raises UnsupportedModel when the model's forward tells its layers of rows by more than
    positions and rotary angles.
    """
    slots = model.get_submodule(config.layers)
    layers = tuple(slots[first:end])
    stand_ins = tuple(StandIn(layer) for layer in slots)
    for part in (*layers, model.get_output_embeddings()):
        for module in part.modules():
            if type(module) is nn.Linear:
                module.forward = _one_pass(module)  # type: ignore[assignment]
    for index, stand_in in enumerate(stand_ins):
        slots[index] = stand_in
    model.config._attn_implementation = ATTENTION
    decoder = BridgedDecoder(
        config=config,
        first=first,
        layers=layers,
        model=model,
        stand_ins=stand_ins,
        device=device,
        constants=({},) * config.num_layers,
        kinds=("",) * config.num_layers,
    )
    with torch.inference_mode():
        decoder.rotation(torch.arange(1, device=device))
    constants: list[dict[str, Any]] = []
    kinds: list[str] = []
    seen: list[Any] = []
    for layer, stand_in in enumerate(stand_ins):
        _check_arguments(model, layer, stand_in.arguments)
        constants.append(
            {
                name: value
                for name, value in stand_in.arguments.items()
                if name not in _ROW_ARGUMENTS
            }
        )
        angles = stand_in.arguments.get("position_embeddings")
        known = [index for index, other in enumerate(seen) if other is angles]
        if not known:
            known = [len(seen)]
            seen.append(angles)
        kinds.append(str(known[0]))
    return replace(decoder, constants=tuple(constants), kinds=tuple(kinds))


def _one_pass(module: nn.Linear) -> Callable[[Tensor], Tensor]:
    """Its product by our `linear`, which half precision on CPU needs."""

    def forward(rows: Tensor) -> Tensor:
        product = linear(rows.flatten(0, -2), module.weight, module.bias)
        return product.view(*rows.shape[:-1], -1)

    return forward


def _check_arguments(model: Any, layer: int, arguments: Mapping[str, Any]) -> None:
    for name, value in arguments.items():
        if name not in _ROW_ARGUMENTS and isinstance(value, (Tensor, tuple, list, dict)):
            raise UnsupportedModel(
                f"{type(model).__name__} hands {name} to layer {layer}, which the bridge cannot "
                "make for a batch of several requests"
            )
