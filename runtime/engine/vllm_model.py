"""Layers [first, end) of a checkpoint as vLLM's own model code has them.

The bare model runs under a forward context whose attention metadata we make: no engine, scheduler
or model runner of vLLM's. A call names the layers it runs, so requests enter and leave where their
routes say, and each layer has pages of its own (`PageBooks`).

Legend: T rows of a stretch, R requests, W pages of the longest, L layers, D hidden, V vocabulary.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from runtime.checkpoints.layer_names import layer_of
from runtime.engine import vllm_compat as compat
from runtime.engine.backend import CannotRun
from runtime.engine.sequence import Work

_CARRIED = {"hidden_states", "residual"}


@dataclass(slots=True, kw_only=True)
class _Kind:
    """Attention layers whose metadata differ in the pages only."""

    builder: Any
    names: dict[int, str] = field(default_factory=dict)  # by layer


class VllmModel:
    """`config` and `weights` are of the checkpoint; `layers` are those it holds.

    Raises CannotRun for a model whose stages exchange more than rows, or whose KV cache is not in
    pages of one size.
    """

    def __init__(
        self,
        config: Any,
        weights: compat.WeightFiles,
        *,
        layers: range,
        num_layers: int,
    ) -> None:
        self.layers = layers
        self.device = compat.device_of(config)
        self._config = config
        self._place = compat.pipeline_place(config)
        self._place.enter(layers, is_first=layers.start == 0, is_last=layers.stop == num_layers)
        self._model: Any = compat.load_model(config, weights)
        self._inner = self._splittable(self._model)
        self._attention = compat.attention_layers(config)
        self._refuse_other_pages()
        self._kinds = self._kinds_of_layers()

    @property
    def page_bytes(self) -> int:
        return self._attention[0].page_bytes

    @property
    def page_tokens(self) -> int:
        return self._attention[0].page_tokens

    @property
    def paths(self) -> list[str]:
        """What computes attention and products, slow ones marked."""
        names = {layer.backend_name for layer in self._attention}
        names |= compat.kernel_names(self._model)
        return [f"{name}, slow" if name in compat.SLOW else name for name in sorted(names)]

    def bind(self, pool_B: Tensor, pages: int) -> None:
        """Keep keys and values in this pool from now on."""
        compat.bind_pool(self._attention, self._config, pool_B, pages)

    def unbind(self) -> None:
        """Before the pool's memory goes elsewhere."""
        compat.unbind_pool(self._attention)

    def embed(self, token_ids_T: Tensor) -> Tensor:
        """Token ids [T], int64 -> rows [T, D], scaled as the family does."""
        none = range(self.layers.start, self.layers.start)
        with compat.forward_context(self._config, n_tokens=len(token_ids_T)):
            entered = self._call(
                none, token_ids_T, torch.zeros_like(token_ids_T), None, is_first=True
            )
        return _rows(entered)

    def run(
        self, layers: range, works: list[Work], hidden_TD: Tensor, positions_T: Tensor
    ) -> Tensor:
        """Rows [T, D] of `works` before `layers` -> behind them, residual added."""
        metadata, slots = self._metadata(layers, works, positions_T)
        with compat.forward_context(
            self._config, n_tokens=len(hidden_TD), metadata=metadata, slots=slots
        ):
            left = self._call(layers, None, positions_T, compat.stage_tensors(hidden_TD))
        return _rows(left)

    def logits(self, hidden_TD: Tensor) -> Tensor:
        """Rows [T, D] behind the last layer -> logits [T, V], by the last norm and the head."""
        none = range(self.layers.stop, self.layers.stop)
        positions_T = torch.zeros(len(hidden_TD), dtype=torch.int64, device=self.device)
        with compat.forward_context(self._config, n_tokens=len(hidden_TD)):
            normed = self._call(
                none, None, positions_T, compat.stage_tensors(hidden_TD), is_last=True
            )
            logits_TV: Tensor = self._model.compute_logits(normed)
        return logits_TV

    def _call(
        self,
        layers: range,
        token_ids_T: Tensor | None,
        positions_T: Tensor,
        tensors: Any,
        *,
        is_first: bool = False,
        is_last: bool = False,
    ) -> Any:
        """The model's own forward over `layers` alone, perhaps none."""
        self._place.enter(layers, is_first=is_first, is_last=is_last)
        self._inner.start_layer, self._inner.end_layer = layers.start, layers.stop
        return self._model(token_ids_T, positions_T, tensors)

    def _metadata(
        self, layers: range, works: list[Work], positions_T: Tensor
    ) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Attention metadata and the slots to write to, by the attention layer's name."""
        tables_LRW, slots_LT = page_tables(layers, works, page_tokens=self.page_tokens)
        tables = torch.from_numpy(tables_LRW).to(self.device)
        slots = torch.from_numpy(slots_LT).to(self.device)
        batch = compat.RaggedBatch(
            counts=torch.tensor([work.chunk.n_tokens for work in works], dtype=torch.int32),
            ends=torch.tensor([work.chunk.end for work in works], dtype=torch.int32),
            positions=positions_T,
        )
        metadata: dict[str, Any] = {}
        slots_by_name: dict[str, Tensor] = {}
        for kind in self._kinds:
            built = common = None
            for layer in layers:
                name = kind.names.get(layer)
                if name is None:
                    continue
                row = layer - layers.start
                if built is None:
                    common = batch.common(tables[row], slots[row])
                    built = metadata[name] = compat.build_metadata(kind.builder, common)
                else:
                    metadata[name] = compat.with_pages(
                        kind.builder, common, built, tables[row], slots[row]
                    )
                slots_by_name[name] = slots[row]
        return metadata, slots_by_name

    def _splittable(self, model: nn.Module) -> Any:
        """The module that loops over the layers from `start_layer` to `end_layer`."""
        inner = next((each for each in model.modules() if hasattr(each, "start_layer")), None)
        carried = compat.carried_between_stages(model, self._config)
        if inner is None or not carried or not carried <= _CARRIED:
            raise CannotRun(
                f"vLLM's {type(model).__name__} cannot be cut into stages that exchange rows "
                f"(it hands on: {', '.join(sorted(carried)) or 'nothing'}); run the model as "
                "instances on machines that hold all of it"
            )
        return inner

    def _refuse_other_pages(self) -> None:
        shared = {layer.backend_name for layer in self._attention} - compat.LAYERWISE
        if shared:
            raise CannotRun(
                f"vLLM chose the attention backend {', '.join(sorted(shared))}, which has one page "
                "table for all layers of a stage; start the node's agent with --engine helix"
            )
        sizes = {layer.page_bytes for layer in self._attention}
        held = sorted(layer_of(layer.name) or 0 for layer in self._attention)
        if len(sizes) != 1 or held != list(self.layers):
            raise CannotRun(
                f"the KV cache of {type(self._model).__name__} is not one page size for each "
                f"layer (bytes per page: {sorted(sizes)}, attention in {len(held)} of "
                f"{len(self.layers)} layers); run the model as instances on machines that hold "
                "all of it"
            )

    def _kinds_of_layers(self) -> list[_Kind]:
        grouped: dict[object, list[compat.AttentionLayer]] = {}
        for layer in self._attention:
            grouped.setdefault(layer.kind, []).append(layer)
        return [
            _Kind(
                builder=compat.metadata_builder(alike, self._config),
                names={layer_of(each.name) or 0: each.name for each in alike},
            )
            for alike in grouped.values()
        ]


def page_tables(
    layers: range, works: list[Work], *, page_tokens: int
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Pages [L, R, W], int32, of each layer and request, and the slots [L, T], int64, that the
    requests' rows are written to."""
    widths = [-(-work.chunk.end // page_tokens) for work in works]
    ends = np.cumsum([0, *(work.chunk.n_tokens for work in works)])
    tables_LRW = np.zeros((len(layers), len(works), max(widths)), dtype=np.int32)
    # filled in place: vLLM's kernels take the slots of a layer to lie side by side
    slots_LT = np.empty((len(layers), ends[-1]), dtype=np.int64)
    for index, (work, width) in enumerate(zip(works, widths, strict=True)):
        first = layers.start - work.sequence.first
        pages_LW = work.sequence.table.pages_LB[first : first + len(layers), :width]
        tables_LRW[:, index, :width] = pages_LW
        blocks, offsets = np.divmod(np.arange(work.chunk.position, work.chunk.end), page_tokens)
        slots_LT[:, ends[index] : ends[index + 1]] = pages_LW[:, blocks] * page_tokens + offsets
    return tables_LRW, slots_LT


def _rows(tensors: Any) -> Tensor:
    """The rows that go on: hidden with its residual added."""
    hidden_TD: Tensor = tensors["hidden_states"]
    residual_TD = tensors.tensors.get("residual")
    return hidden_TD if residual_TD is None else hidden_TD + residual_TD
