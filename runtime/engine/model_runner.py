"""Runs one step: a ragged batch whose requests enter and leave at layers of their own.

Legend: T rows of the step, R some of them, D hidden, V vocabulary.
"""

import itertools
from collections.abc import Collection
from collections.abc import Sequence as Items

import numpy as np
import torch
from torch import Tensor

from runtime.engine.attention import PagedAttention, Span
from runtime.engine.decode_graphs import DecodeGraphs
from runtime.engine.host_memory import HostMemory, host_memory
from runtime.engine.kv_cache import KvCache
from runtime.engine.sequence import Work
from runtime.engine.varlen_attention import Kernel, PageFollowing, make_tables
from runtime.models.decoder import Attend, Decoder


class ModelRunner:
    """The decoder and the KV cache it writes. Used from one thread.

    `kernel` follows pages instead of gathering them; `graphs` play steps of decodes that all run
    the same of the `whole` ranges of layers.
    """

    def __init__(
        self,
        decoder: Decoder,
        cache: KvCache,
        *,
        max_context_tokens: int,
        kernel: Kernel | None = None,
        graphs: DecodeGraphs | None = None,
        whole: Collection[range] = (),
    ) -> None:
        self._decoder = decoder
        self._whole = whole
        self._cache = cache
        self._gather_tokens = max_context_tokens
        self._kernel = kernel
        self._graphs = graphs
        self._host = host_memory(decoder.device)

    @property
    def host(self) -> HostMemory:
        """What rows pass through on their way from and to the wire."""
        return self._host

    @property
    def decoder(self) -> Decoder:
        return self._decoder

    @property
    def cache(self) -> KvCache:
        return self._cache

    @property
    def weights_bytes(self) -> int:
        """Of all processes that run the layers."""
        return self._decoder.config.weights_bytes_of(self._decoder.held)

    @property
    def kv_bytes(self) -> int:
        """Of all processes that run the layers."""
        return self._cache.nbytes

    def run_with(self, decoder: Decoder, *, whole: Collection[range]) -> None:
        """Run the layers of `decoder` from the next step on."""
        self.forget_recordings()
        self._decoder = decoder
        self._whole = whole

    def forget_recordings(self) -> None:
        """Before weights or pages go elsewhere: nothing of them is kept here."""
        if self._graphs is not None:
            self._graphs.forget()

    @torch.inference_mode()
    def forward(self, step: Items[Work]) -> Tensor:
        """Rows [T, D] of the step, in its order, each behind the last layer its request runs here.

        Requests enter at `sequence.first` and leave at `sequence.end`. Between two layers where
        one enters or leaves, the same rows are active; they are gathered once per such stretch.
        """
        decoder = self._decoder
        starts = np.cumsum([0, *(work.chunk.n_tokens for work in step)])
        hidden_TD = self._entering_rows(step, starts)
        positions = [np.arange(work.chunk.position, work.chunk.end) for work in step]
        positions_T = torch.from_numpy(np.concatenate(positions)).to(decoder.device)
        if self._graphs is not None and self._is_playable(step, self._graphs):
            tables = make_tables([_span(work) for work in step], self._cache.pools)
            return self._graphs.play(
                hidden_TD, positions_T, tables, decoder=decoder, pools=self._cache.pools
            )
        rotation = decoder.rotation(positions_T)
        borders = sorted(
            {work.sequence.first for work in step} | {work.sequence.end for work in step}
        )
        for first, end in itertools.pairwise(borders):
            active = [
                index
                for index, work in enumerate(step)
                if work.sequence.first <= first < work.sequence.end
            ]
            if not active:
                continue
            attend = self._attention([_span(step[index]) for index in active])
            everything = len(active) == len(step)
            rows = [np.arange(starts[index], starts[index + 1]) for index in active]
            rows_R = torch.from_numpy(np.concatenate(rows)).to(decoder.device)
            active_RD = hidden_TD if everything else hidden_TD[rows_R]
            turned = rotation if everything else rotation.of_rows(rows_R)
            for layer in range(first, end):
                active_RD = decoder.run_layer(layer, active_RD, rotation=turned, attend=attend)
            if everything:
                hidden_TD = active_RD
            else:
                hidden_TD[rows_R] = active_RD
        return hidden_TD

    def _attention(self, spans: list[Span]) -> Attend:
        pools, most = self._cache.pools, self._gather_tokens
        if self._kernel is None:
            return PagedAttention(spans, pools, gather_tokens=most)
        return PageFollowing(self._kernel, spans, pools, gather_tokens=most)

    def _is_playable(self, step: Items[Work], graphs: DecodeGraphs) -> bool:
        layers = range(step[0].sequence.first, step[0].sequence.end)
        return (
            layers in self._whole
            and graphs.fits(len(step))
            and all(
                work.chunk.n_tokens == 1
                and (work.sequence.first, work.sequence.end) == (layers.start, layers.stop)
                for work in step
            )
        )

    @torch.inference_mode()
    def logits(self, hidden_RD: Tensor) -> Tensor:
        """Logits [R, V], float32, of rows behind the model's last layer."""
        return self._decoder.logits(hidden_RD)

    def _entering_rows(self, step: Items[Work], starts: np.ndarray) -> Tensor:
        """hidden [T, D]: embedded token ids where a request enters at layer 0, else its rows."""
        config, device = self._decoder.config, self._decoder.device
        hidden_TD = self._host.empty(int(starts[-1]), config.hidden_size, dtype=config.dtype)
        bytes_of_rows = hidden_TD.view(torch.uint8).numpy()
        token_ids, token_rows = [], []
        for work, start in zip(step, starts, strict=False):
            rows = slice(int(start), int(start) + work.chunk.n_tokens)
            if work.sequence.first == 0:
                token_ids.append(np.frombuffer(work.chunk.payload, dtype="<i4"))
                token_rows.append(np.arange(rows.start, rows.stop))
            else:
                received = np.frombuffer(work.chunk.payload, dtype=np.uint8)
                bytes_of_rows[rows] = received.reshape(work.chunk.n_tokens, -1)
        hidden_TD = self._host.to_device(hidden_TD)
        if token_ids:
            ids_R = torch.from_numpy(np.concatenate(token_ids).astype(np.int64)).to(device)
            rows_R = torch.from_numpy(np.concatenate(token_rows)).to(device)
            hidden_TD[rows_R] = self._decoder.embed(ids_R)
        return hidden_TD


def _span(work: Work) -> Span:
    return Span(
        position=work.chunk.position,
        n_tokens=work.chunk.n_tokens,
        first=work.sequence.first,
        table=work.sequence.table,
    )
