"""Runs the layers of a step with our own decoders.

Legend: T rows of the step, R some of them, D hidden, V vocabulary.
"""

from collections.abc import Callable, Collection, Iterable

import torch
from torch import Tensor

from runtime.engine.attention import PagedAttention
from runtime.engine.host_memory import Parcel
from runtime.engine.kv_cache import KvCache
from runtime.engine.sequence import Work
from runtime.engine.step_runner import RunLayers, StepRunner
from runtime.models.compact_decoder import CompactDecoder
from runtime.models.decoder import Decoder, Rotation


class ModelRunner(StepRunner):
    """Runs steps on our own decoders; a `ModelBackend` owns one.

    The decoder and the KV cache it writes. Used from one thread.
    """

    cache: KvCache

    def __init__(
        self,
        decoder: Decoder,
        cache: KvCache,
        *,
        max_context_tokens: int,
        wire_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(decoder.config, cache, decoder.device, wire_dtype=wire_dtype)
        self.decoder = decoder
        self._gather_tokens = max_context_tokens
        self._rotation: Rotation  # of the step that runs

    @property
    def held(self) -> Collection[int]:
        return self.decoder.held

    def add(self, parts: Iterable[Decoder]) -> None:
        """Run their layers too, which are of the same model. Of our own families only."""
        for part in parts:
            self.decoder = _own(self.decoder).joined(_own(part))

    def forget(self, layers: Collection[int]) -> None:
        """See `StepRunner`. Of our own families only."""
        self.decoder = _own(self.decoder).only(set(self.held).difference(layers))

    @torch.inference_mode()
    def logits(self, hidden_RD: Tensor) -> Tensor:
        """Logits [R, V], float32, of rows behind the model's last layer."""
        return self.decoder.logits(hidden_RD)

    def _prepare_step(self, parcel: Parcel) -> Callable[[Tensor], None]:
        def begin(positions_T: Tensor) -> None:
            self._rotation = self.decoder.rotation(positions_T)

        return begin

    def _embed(self, token_ids_R: Tensor) -> Tensor:
        return self.decoder.embed(token_ids_R)

    def _prepare_layers(self, layers: range, works: list[Work], parcel: Parcel) -> RunLayers:
        attend = PagedAttention(works, self.cache, gather_tokens=self._gather_tokens)

        def run(hidden_RD: Tensor, _: Tensor, rows_R: Tensor | None) -> Tensor:
            rotation = self._rotation if rows_R is None else self._rotation.of_rows(rows_R)
            for layer in layers:
                hidden_RD = self.decoder.run_layer(
                    layer, hidden_RD, rotation=rotation, attend=attend
                )
            return hidden_RD

        return run


def _own(decoder: Decoder) -> CompactDecoder:
    if not isinstance(decoder, CompactDecoder):
        raise TypeError(f"a {type(decoder).__name__} keeps the layers that it was loaded with")
    return decoder
