"""Layers [first, end) of a checkpoint as vLLM's own model code has them.

The bare model runs under a forward context whose attention metadata we make: no engine, scheduler
or model runner of vLLM's. A call names the layers it runs, so requests enter and leave where their
routes say, and each layer has pages of its own (`KvCacheManager`).

Legend: T rows of a stretch, R requests, W pages of the longest, L layers, D hidden, V vocabulary.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from runtime.checkpoints.layer_names import layer_of
from runtime.checkpoints.splitting import INSTANCES
from runtime.engine import vllm_attention as attention
from runtime.engine import vllm_compat as compat
from runtime.engine.backend import CannotRun
from runtime.engine.host_memory import Parcel, Sent
from runtime.engine.limits import EngineLimits
from runtime.engine.sequence import Work
from runtime.engine.step_runner import RunLayers
from runtime.engine.vllm_graphs import DecodeGraphs, Record, RowGraphs, graph_sizes
from runtime.engine.vllm_loops import Loop, layer_loop
from runtime.engine.vllm_traces import trace_layers

logger = logging.getLogger(__name__)

GRAPHS = "decode graphs"
# makes metadata with a builder, of what its layers have in common
Build = Callable[[Any, Any], Any]
_CARRIED = {"hidden_states", "residual"}
_TABLE_MULTIPLE = 16  # pages: 64 bytes
_SLOTS_MULTIPLE = 8  # rows: 64 bytes
_TRACED_ROWS = 7


@dataclass(slots=True, kw_only=True)
class _Kind:
    """Attention layers whose metadata differ in the pages only."""

    builder: Any
    names: dict[int, str] = field(default_factory=dict)  # by layer


class VllmModel:
    """One range of layers in vLLM's model code; a `VllmRunner` owns one or more.

    `config` and `weights` are of the checkpoint; `layers` are those it holds.

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
        is_tied: bool,
    ) -> None:
        self.layers = layers
        self.held = frozenset(layers)
        self._is_tied = is_tied
        self._num_layers = num_layers
        self._hidden_size = int(config.model_config.get_hidden_size())
        self.device = compat.device_of(config)
        self._config = config
        self._place = compat.pipeline_place(config)
        self._place.enter(layers, is_first=layers.start == 0, is_last=layers.stop == num_layers)
        self._model: Any = compat.load_model(config, weights)
        self._loop = self._splittable(self._model)
        self._drop_unused_tables()
        self._attention = attention.attention_layers(config)
        self._refuse_other_pages()
        self._kinds = self._kinds_of_layers()
        self._graphs: DecodeGraphs | None = None
        self._embedding_graphs: RowGraphs | None = None
        self._adds_residual = self._residual_is_added()
        if self.device.type == "cpu":
            held = [self._loop.layers[layer] for layer in layers]
            trace_layers(self._model, held, lambda: self.run_largest(_TRACED_ROWS))

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
        names |= set() if self._graphs is None else {GRAPHS}
        return [f"{name}, slow" if name in compat.SLOW else name for name in sorted(names)]

    def bind(self, pool_B: Tensor, pages: int) -> None:
        """Keep keys and values in this pool from now on."""
        if self._graphs is not None:
            self._graphs.forget()
        attention.bind_pool(self._attention, self._config, pool_B, pages)

    def unbind(self) -> None:
        """Before the pool's memory goes elsewhere."""
        attention.unbind_pool(self._attention)

    def share_table(self, other: "VllmModel") -> None:
        """Have the other's token table, if both have one that is the output head's too."""
        if self._is_tied and self._needs_table and other._needs_table:
            compat.share_tables(self._model, other._model)

    def forget(self, layers: Collection[int]) -> None:
        """Free the weights of `layers`, of the embedding with layer 0, of the head with the last;
        requests that run them must be over."""
        gone = self.held.intersection(layers)
        if not gone:
            return
        self.held -= gone
        left = [layer for layer in self._attention if layer_of(layer.name) not in gone]
        attention.unbind_pool([layer for layer in self._attention if layer not in left])
        compat.forget_modules(
            self._model, self._config, [self._loop.layers[layer] for layer in gone]
        )
        self._loop.drop(gone)
        self._drop_unused_tables()
        self._attention = left
        self._kinds = self._kinds_of_layers()
        self._graphs = self._embedding_graphs = None  # they run all layers

    def _drop_unused_tables(self) -> None:
        has_head = self._num_layers - 1 in self.held
        compat.drop_tables(self._model, embedding=not self._needs_table, head=not has_head)

    @property
    def _needs_table(self) -> bool:
        return 0 in self.held or (self._is_tied and self._num_layers - 1 in self.held)

    def embed(self, token_ids_T: Tensor) -> Tensor:
        """Token ids [T], int64 -> rows [T, D], scaled as the family does; until the next call."""
        if self._embedding_graphs is not None:
            try:
                return self._embedding_graphs(token_ids_T)
            except torch.OutOfMemoryError as error:
                self._record_no_more(error)
        return self._embedded(token_ids_T)

    def _embedded(self, token_ids_T: Tensor) -> Tensor:
        none = range(self.layers.start, self.layers.start)
        with compat.forward_context(self._config, n_tokens=len(token_ids_T)):
            entered = self._call(
                none, token_ids_T, torch.zeros_like(token_ids_T), None, is_first=True
            )
        return self._rows(entered)

    def prepare(self, layers: range, works: list[Work], parcel: Parcel) -> RunLayers:
        """What runs `works` through `layers`, once what it adds to `parcel` is sent."""
        host_starts = np.cumsum([0, *(work.chunk.n_tokens for work in works)], dtype=np.int32)
        host_ends = np.array([work.chunk.end for work in works], dtype=np.int32)
        starts, ends = parcel.add(host_starts), parcel.add(host_ends)
        tables, slots = add_pages(parcel, layers, works, page_tokens=self.page_tokens)

        def run(hidden_TD: Tensor, positions_T: Tensor, _: Tensor | None) -> Tensor:
            batch = attention.RaggedBatch(
                starts=starts(),
                ends=ends(),
                positions=positions_T,
                host_starts=host_starts,
                host_ends=host_ends,
            )
            slots_LT = slots()[:, : len(hidden_TD)]
            if self._graphs is not None and layers == self.layers and self._graphs.can_run(batch):
                try:
                    return self._graphs.run(hidden_TD, batch, tables(), slots_LT)
                except torch.OutOfMemoryError as error:
                    self._record_no_more(error)
            metadata, slots_by_name = self._metadata(layers, batch, tables(), slots_LT)
            return self._run(layers, hidden_TD, positions_T, metadata, slots_by_name)

        return run

    def record_decodes(self, record: Record, *, limits: EngineLimits) -> bool:
        """Have `record` make graphs of decode steps; False if the attention backend allows none.

        `compat.allow_graphs` was called before the model was made.
        """
        if not all(attention.can_be_in_graphs(kind.builder) for kind in self._kinds):
            return False
        sizes = graph_sizes(limits.max_batch_tokens)
        if self.layers.start == 0:
            id_1 = torch.zeros(1, dtype=torch.int64, device=self.device)
            self._embedding_graphs = RowGraphs(self._embedded, row=id_1, sizes=sizes, record=record)
        self._graphs = DecodeGraphs(
            self._prepare_graph,
            n_layers=len(self.layers),
            row=self._empty_rows(1),
            sizes=sizes,
            max_context_tokens=limits.max_context_tokens,
            width=_rounded(limits.context_pages, _TABLE_MULTIPLE),
            record=record,
        )
        return True

    def _record_no_more(self, error: torch.OutOfMemoryError) -> None:
        logger.warning("decode steps are recorded no more: %s", error)
        self._graphs = self._embedding_graphs = None

    def _prepare_graph(
        self, batch: attention.RaggedBatch, tables_LRW: Tensor, slots_LR: Tensor
    ) -> tuple[Callable[[Tensor, Tensor], Tensor], Callable[[], None]]:
        """A `Prepare` of `DecodeGraphs`. The layers of a kind share what their builder keeps."""
        metadata, slots = self._metadata(
            self.layers, batch, tables_LRW, slots_LR, build=attention.build_for_graph
        )
        firsts = [(kind.builder, min(kind.names) - self.layers.start) for kind in self._kinds]
        commons = [(builder, batch.common(tables_LRW[at], slots_LR[at])) for builder, at in firsts]

        def renew() -> None:
            for builder, common in commons:
                attention.build_metadata(builder, common)

        return partial(self._run, self.layers, metadata=metadata, slots=slots), renew

    def _run(
        self,
        layers: range,
        hidden_TD: Tensor,
        positions_T: Tensor,
        metadata: dict[str, Any] | None,
        slots: dict[str, Tensor] | None,
    ) -> Tensor:
        with compat.forward_context(
            self._config, n_tokens=len(hidden_TD), metadata=metadata, slots=slots
        ):
            left = self._call(layers, None, positions_T, compat.stage_tensors(hidden_TD))
        return self._rows(left)

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

    @torch.inference_mode()
    def run_largest(self, rows: int) -> None:
        """Run `rows` rows through the embedding, all layers and the head, without attention. Memory
        that a step takes beside weights and pages is allocated then."""
        ids_T = torch.zeros(rows, dtype=torch.int64, device=self.device)
        hidden_TD = self._empty_rows(rows)
        if self.layers.start == 0:
            hidden_TD = self.embed(ids_T)
        hidden_TD = self._run(self.layers, hidden_TD, ids_T, None, None)
        if self.layers.stop == self._num_layers:
            self.logits(hidden_TD).float()

    def _empty_rows(self, rows: int) -> Tensor:
        dtype = self._config.model_config.dtype
        return torch.zeros(rows, self._hidden_size, dtype=dtype, device=self.device)

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
        self._loop.enter(layers, is_last=is_last)
        return self._model(token_ids_T, positions_T, tensors)

    def _metadata(
        self,
        layers: range,
        batch: attention.RaggedBatch,
        tables_LRW: Tensor,
        slots_LT: Tensor,
        *,
        build: Build = attention.build_metadata,
    ) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Attention metadata and the slots to write to, by the attention layer's name.

        vLLM builds for the first layer of each kind; the others differ in their pages only.
        """
        metadata: dict[str, Any] = {}
        slots_by_name: dict[str, Tensor] = {}
        pages = dict(
            zip(layers, zip(tables_LRW.unbind(), slots_LT.unbind(), strict=True), strict=True)
        )
        for kind in self._kinds:
            built = None
            for layer in layers:
                name = kind.names.get(layer)
                if name is None:
                    continue
                table_RW, slots_T = pages[layer]
                if built is None:
                    built = build(kind.builder, batch.common(table_RW, slots_T))
                    metadata[name] = built
                else:
                    metadata[name] = attention.with_pages(kind.builder, built, table_RW, slots_T)
                slots_by_name[name] = slots_T
        return metadata, slots_by_name

    def _rows(self, tensors: Any) -> Tensor:
        """The rows that go on, by what a model handed on."""
        hidden_TD: Tensor = tensors["hidden_states"]
        residual_TD: Tensor | None = tensors.tensors.get("residual")
        if residual_TD is None or not self._adds_residual:
            return hidden_TD
        return hidden_TD + residual_TD

    def _residual_is_added(self) -> bool:
        """True if a row is the sum of what the model hands on, False if it is hidden alone.

        Tried on the first layer held: families differ, and their code does not say it.
        """
        carried = compat.carried_between_stages(self._model, self._config)
        if "residual" not in carried:
            return False
        row_1D = carried["hidden_states"]
        generator = torch.Generator().manual_seed(0)
        rows_TD = torch.randn(2, row_1D.shape[-1], generator=generator).to(row_1D)
        positions_T = torch.arange(len(rows_TD), device=self.device)
        first = self.layers.start
        tried = next(each for each in self._attention if layer_of(each.name) == first)

        def left(hidden_TD: Tensor, residual_TD: Tensor) -> tuple[Tensor, Tensor]:
            """Behind the layer: hidden alone, and the sum."""
            entering = compat.stage_tensors(hidden_TD, residual_TD)
            with compat.forward_context(self._config, n_tokens=len(hidden_TD)):
                told = self._call(range(first, first + 1), None, positions_T, entering)
            return told["hidden_states"], told["hidden_states"] + told["residual"]

        with torch.inference_mode(), attention.without_attention(tried):
            hidden_TD, sum_TD = left(rows_TD, torch.zeros_like(rows_TD))
            if _alike(sum_TD, left(rows_TD / 2, rows_TD / 2)[1]):
                return True
            if _alike(hidden_TD, left(rows_TD, rows_TD)[0]):
                return False
        raise CannotRun(
            f"vLLM's {type(self._model).__name__} hands on rows and residuals that have no common "
            f"meaning for HelixWeb; {INSTANCES}"
        )

    def _splittable(self, model: nn.Module) -> Loop:
        """What loops over the layers of the model."""
        loop = layer_loop(model)
        carried = compat.carried_between_stages(model, self._config)
        if loop is None or not carried or not carried.keys() <= _CARRIED:
            raise CannotRun(
                f"vLLM's {type(model).__name__} cannot be cut into stages that exchange rows "
                f"(it hands on: {', '.join(sorted(carried)) or 'nothing'}); {INSTANCES}"
            )
        return loop

    def _refuse_other_pages(self) -> None:
        shared = {layer.backend_name for layer in self._attention} - attention.LAYERWISE
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
                f"{len(self.layers)} layers); {INSTANCES}"
            )

    def _kinds_of_layers(self) -> list[_Kind]:
        grouped: dict[object, list[attention.AttentionLayer]] = {}
        for layer in self._attention:
            grouped.setdefault(layer.kind, []).append(layer)
        return [
            _Kind(
                builder=attention.metadata_builder(alike, self._config),
                names={layer_of(each.name) or 0: each.name for each in alike},
            )
            for alike in grouped.values()
        ]


def add_pages(
    parcel: Parcel, layers: range, works: list[Work], *, page_tokens: int
) -> tuple[Sent, Sent]:
    """Pages [L, R, W], int32, of each layer and request, and slots [L, >= T], int64, that the
    requests' rows are written to.

    W and the second size of the slots are rounded up: of other strides and addresses Triton
    compiles kernels once more, in the middle of a step.
    """
    widths = [-(-work.chunk.end // page_tokens) for work in works]
    counts = [work.chunk.n_tokens for work in works]
    shape = (len(layers), len(works), _rounded(max(widths), _TABLE_MULTIPLE))
    tables_LRW: NDArray[np.int32]

    def write_tables(out_LRW: NDArray[np.int32]) -> None:
        nonlocal tables_LRW
        tables_LRW = out_LRW
        for index, (work, width) in enumerate(zip(works, widths, strict=True)):
            first = layers.start - work.sequence.first
            pages_LB = work.sequence.table.pages_LB
            out_LRW[:, index, :width] = pages_LB[first : first + len(layers), :width]
            out_LRW[:, index, width:] = 0

    def write_slots(out_LT: NDArray[np.int64]) -> None:
        positions_T = np.concatenate(
            [np.arange(work.chunk.position, work.chunk.end) for work in works]
        )
        blocks_T, offsets_T = np.divmod(positions_T, page_tokens)
        requests_T = np.repeat(np.arange(len(works)), counts)
        # int64 before the product: a large pool has more slots than int32 numbers
        pages_LT = tables_LRW[:, requests_T, blocks_T].astype(np.int64)
        out_LT[:, : len(positions_T)] = pages_LT * page_tokens + offsets_T

    tables = parcel.fill(shape, np.int32, write_tables)
    rows = _rounded(sum(counts), _SLOTS_MULTIPLE)
    return tables, parcel.fill((len(layers), rows), np.int64, write_slots)


def _rounded(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


def _alike(one_TD: Tensor, other_TD: Tensor) -> bool:
    """But for rounding."""
    return float((one_TD - other_TD).norm()) <= 0.01 * float(one_TD.norm())
