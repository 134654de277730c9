"""Steps of nothing but decodes, recorded once as a CUDA graph and played back: one launch a step.

A step is played when all its requests run the same layers, a whole generation's, one row each, and
no layer bends its scores. A recording is of those layers and for a fixed number of rows; fewer rows
are filled up with copies of the first, which write the same keys and values to the same place once
more.

Legend: T rows, D hidden, L layers, B rows recorded, M pages of the longest context.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from runtime.engine.kv_cache import KvPools
from runtime.engine.varlen_attention import Kernel, StepTables, VarlenAttention
from runtime.models.decoder import Decoder

logger = logging.getLogger(__name__)

_SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128)
MOST_ROWS = _SIZES[-1]
_WARM_UPS = 2  # before a recording, for what libraries set up at their first use


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recording:
    replay: Callable[[], object]
    hidden_BD: Tensor
    positions_B: Tensor
    tables: StepTables
    after_BD: Tensor


class DecodeGraphs:
    """The recordings of one stage, made when first needed. `context_pages`: of the longest."""

    def __init__(self, kernel: Kernel, *, context_pages: int) -> None:
        self._kernel = kernel
        self._context_pages = context_pages
        self._recordings: dict[tuple[int, range], _Recording] = {}

    def fits(self, rows: int) -> bool:
        """Whether a step of as many decodes can be played."""
        return rows <= MOST_ROWS

    def forget(self) -> None:
        """Give all recordings back: weights or pages that they use will be elsewhere."""
        self._recordings.clear()

    def play(
        self,
        hidden_TD: Tensor,
        positions_T: Tensor,
        tables: StepTables,
        *,
        decoder: Decoder,
        pools: KvPools,
    ) -> Tensor:
        """Rows [T, D] behind the last layer of `tables`; valid until the next call. All on the
        device. `decoder` and `pools` are the same until `forget`."""
        rows = len(hidden_TD)
        size = next(size for size in _SIZES if size >= rows)
        key = (size, _layers_of(tables))
        if key not in self._recordings:
            self._recordings[key] = self._record(
                size, hidden_TD, positions_T, tables, decoder=decoder, pools=pools
            )
        recording = self._recordings[key]
        self._fill(recording, hidden_TD, positions_T, tables)
        recording.replay()
        return recording.after_BD[:rows]

    def _fill(
        self, recording: _Recording, hidden_TD: Tensor, positions_T: Tensor, tables: StepTables
    ) -> None:
        size = len(recording.hidden_BD)
        recording.hidden_BD.copy_(_filled(hidden_TD, size, dim=0))
        recording.positions_B.copy_(_filled(positions_T, size, dim=0))
        recording.tables.ends_B.copy_(_filled(tables.ends_B, size, dim=0))
        recording.tables.slots_LT.copy_(_filled(tables.slots_LT, size, dim=1))
        used = tables.pages_LBM.shape[2]
        recording.tables.pages_LBM[:, :, :used].copy_(_filled(tables.pages_LBM, size, dim=1))

    def _record(
        self,
        size: int,
        hidden_TD: Tensor,
        positions_T: Tensor,
        tables: StepTables,
        *,
        decoder: Decoder,
        pools: KvPools,
    ) -> _Recording:
        """With this step's rows, so that what warming up writes to the cache is right."""
        layers = _layers_of(tables)
        logger.info(
            "recording decodes of up to %d rows in layers [%d, %d)", size, layers.start, layers.stop
        )
        device = hidden_TD.device
        used = tables.pages_LBM.shape[2]
        fixed = StepTables(
            starts_B1=torch.arange(size + 1, dtype=torch.int32, device=device),
            ends_B=_filled(tables.ends_B, size, dim=0).clone(),
            most_rows=1,
            most_tokens=self._context_pages * pools.page_tokens,
            first_layer=tables.first_layer,
            pages_LBM=functional.pad(
                _filled(tables.pages_LBM, size, dim=1), (0, self._context_pages - used)
            ).contiguous(),
            slots_LT=_filled(tables.slots_LT, size, dim=1).clone(),
        )
        hidden_BD = _filled(hidden_TD, size, dim=0).clone()
        positions_B = _filled(positions_T, size, dim=0).clone()
        attend = VarlenAttention(self._kernel, fixed, pools)

        def run() -> Tensor:
            return _run_layers(layers, decoder, hidden_BD, positions_B, attend)

        replay, after_BD = self._capture(run, device=device)
        return _Recording(
            replay=replay,
            hidden_BD=hidden_BD,
            positions_B=positions_B,
            tables=fixed,
            after_BD=after_BD,
        )

    def _capture(
        self, run: Callable[[], Tensor], *, device: torch.device
    ) -> tuple[Callable[[], object], Tensor]:
        """What does all of `run` again, from and into the same memory, and what `run` gave."""
        aside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(aside):
            for _ in range(_WARM_UPS):
                run()
        torch.cuda.current_stream(device).wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        # another thread may be loading layers meanwhile, which takes memory of the device
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            after_BD = run()
        return graph.replay, after_BD


def _layers_of(tables: StepTables) -> range:
    return range(tables.first_layer, tables.first_layer + len(tables.pages_LBM))


def _run_layers(
    layers: range,
    decoder: Decoder,
    hidden_BD: Tensor,
    positions_B: Tensor,
    attend: VarlenAttention,
) -> Tensor:
    rotation = decoder.rotation(positions_B)
    for layer in layers:
        hidden_BD = decoder.run_layer(layer, hidden_BD, rotation=rotation, attend=attend)
    return hidden_BD


def _filled(rows: Tensor, size: int, *, dim: int) -> Tensor:
    """`rows` and as many copies of its first along `dim` as make `size`."""
    missing = size - rows.shape[dim]
    if not missing:
        return rows
    shape = list(rows.shape)
    shape[dim] = missing
    return torch.cat((rows, rows.narrow(dim, 0, 1).expand(shape)), dim=dim)
