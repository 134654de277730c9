"""A step's copies between host and device, counted without a device: see `device_crossings`."""

from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from device_crossings import CPU, META, Crossings
from sampling_rows import PLAIN
from torch import Tensor

from runtime.checkpoints.decoder_sizes import DecoderSizes
from runtime.engine.grammar import Grammars
from runtime.engine.host_memory import HostMemory, Parcel
from runtime.engine.model_backend import ModelBackend
from runtime.engine.sequence import Chunk, RequestKey, Sequence, Work
from runtime.engine.step_runner import RunLayers, StepRunner
from runtime.protocol.data import Hop, Route, Sampling

LAYERS, HIDDEN, VOCAB = 6, 8, 50
GREEDY = replace(PLAIN, temperature=0.0)
TO_DEVICE, TO_HOST = "to the device", "to the host"


class ToyRunner(StepRunner):
    """Layers that add their number to the rows; `device` need not have memory."""

    def __init__(self, device: torch.device, held: range) -> None:
        sizes = DecoderSizes(
            num_layers=LAYERS,
            hidden_size=HIDDEN,
            intermediate_size=HIDDEN,
            num_heads=1,
            num_kv_heads=1,
            head_size=HIDDEN,
            vocab_size=VOCAB,
            layer_bytes=(0,) * LAYERS,
            tie_word_embeddings=False,
            max_position_embeddings=64,
            dtype_name="float32",
        )
        cache: Any = SimpleNamespace(kv_manager=None, nbytes=0)
        super().__init__(sizes, cache, device)
        self.host = HostMemory(device, pinned=None)
        self._held = held

    @property
    def held(self) -> range:
        return self._held

    def forget(self, layers: object) -> None:
        raise AssertionError("its layers stay")

    def logits(self, hidden_RD: Tensor) -> Tensor:
        return hidden_RD.repeat(1, VOCAB // HIDDEN + 1)[:, :VOCAB]

    def _prepare_step(self, parcel: Parcel) -> Callable[[Tensor], None]:
        return lambda _: None

    def _embed(self, token_ids_R: Tensor) -> Tensor:
        return token_ids_R[:, None].expand(-1, HIDDEN).float()

    def _prepare_layers(self, layers: range, works: list[Work], parcel: Parcel) -> RunLayers:
        added = parcel.add(np.array([sum(layers)], np.int64))
        return lambda hidden_RD, _, __: hidden_RD + added()


def step_of(*spans: tuple[int, int], n_tokens: int = 1, sampling: Sampling = GREEDY) -> list[Work]:
    """Requests that run these layers, each with as many tokens, or rows of its number."""
    works = []
    for number, (first, end) in enumerate(spans, start=1):
        hops = [Hop(node="here", first=first, end=end)]
        hops += [Hop(node="next", first=end, end=LAYERS)] if end < LAYERS else []
        route = Route(hops=tuple(hops), sampling=sampling, prompt_tokens=1)
        key = RequestKey(request=number, epoch=1)
        sequence = Sequence(key=key, generation=1, route=route, hop=0, arrival=number)
        values = (
            np.full(n_tokens, number, "<i4")
            if first == 0
            else np.full((n_tokens, HIDDEN), number, np.float32)
        )
        chunk = Chunk(
            position=5,
            n_tokens=n_tokens,
            payload=memoryview(values.tobytes()),
            is_sampled=end == LAYERS,
            arrival=0,
        )
        works.append(Work(sequence=sequence, chunk=chunk))
    return works


def crossings_of(held: range, step: Items[Work], tmp_path: Path) -> list[str]:
    backend = ModelBackend(ToyRunner(META, held), grammars=Grammars(tmp_path, vocab_size=VOCAB))
    with Crossings() as crossings:
        result = backend.run(step)
        if held.stop < LAYERS:
            rows = sum(work.chunk.n_tokens for work in step)
            for receiver in ([(0, 1)], [(1, rows)]):
                result.rows.gather(receiver)
    return [where for where, _ in crossings.seen]


@pytest.mark.parametrize("n_tokens", [1, 3])
@pytest.mark.parametrize(
    "spans", [[(0, 4), (0, 4)], [(1, 4), (1, 4)], [(0, 4), (1, 4), (2, 4), (0, 3)]]
)
def test_a_stage_sends_its_step_at_once_and_reads_the_rows_of_all_receivers_at_once(
    tmp_path: Path, spans: list[tuple[int, int]], n_tokens: int
) -> None:
    step = step_of(*spans, n_tokens=n_tokens)
    assert crossings_of(range(4), step, tmp_path) == [TO_DEVICE, TO_HOST]


def test_greedy_decodes_need_one_copy_there_and_one_back(tmp_path: Path) -> None:
    step = step_of((0, 6), (0, 6), (2, 6))
    assert crossings_of(range(6), step, tmp_path) == [TO_DEVICE, TO_HOST]


@pytest.mark.parametrize(
    "sampling",
    [
        PLAIN,
        replace(PLAIN, top_p=0.9, top_k=10, min_p=0.1, logprobs=3),
        replace(PLAIN, frequency_penalty=1.0, logit_bias=((3, 1.0),), prompt_ids=(1, 2)),
    ],
)
def test_sampled_decodes_need_one_more_copy_there(tmp_path: Path, sampling: Sampling) -> None:
    step = step_of((0, 6), (0, 6), (2, 6), sampling=sampling)
    assert crossings_of(range(6), step, tmp_path) == [TO_DEVICE, TO_DEVICE, TO_HOST]


@pytest.mark.parametrize(
    "read",
    [
        lambda rows: rows.sum().item(),
        lambda rows: rows[rows > 0],
        lambda rows: rows[[0, 2]],
        lambda rows: rows[torch.tensor([0, 2])],
        lambda rows: rows * torch.tensor([2.0], device=META),
        lambda rows: rows.cpu(),
        lambda rows: rows.copy_(torch.ones(3, 8)),
    ],
)
def test_the_counter_sees_what_crosses(read: Callable[[Tensor], object]) -> None:
    with torch.inference_mode(), Crossings() as crossings:
        read(torch.empty(3, 8, device=META))
    assert crossings.seen


def test_rows_are_those_that_layers_made_of_ids_and_of_rows() -> None:
    step = step_of((0, 4), (1, 4), (0, 3), (2, 4), n_tokens=2)
    hidden_TD = ToyRunner(CPU, range(4)).forward(step)
    sums = [1 + 0 + 1 + 2 + 3, 2 + 1 + 2 + 3, 3 + 0 + 1 + 2, 4 + 2 + 3]
    assert hidden_TD.tolist() == [[float(each)] * HIDDEN for each in sums for _ in range(2)]


def test_a_parcel_carries_arrays_of_any_type_and_size_in_one_aligned_piece() -> None:
    arrays = [
        np.arange(5, dtype=np.int64),
        np.array([[True, False, True]]),
        np.zeros((0, 3), np.float32),
        np.arange(7, dtype=np.float64),
        np.array([-1], np.int32),
    ]
    parcel = HostMemory(CPU, pinned=None).parcel()
    sent = [parcel.add(array) for array in arrays]
    with pytest.raises(RuntimeError, match="not sent"):
        sent[0]()
    parcel.send()
    for each, array in zip(sent, arrays, strict=True):
        assert np.array_equal(each().numpy(), array)
        assert each().dtype == torch.from_numpy(array).dtype
    base = sent[0]().data_ptr()
    assert all((each().data_ptr() - base) % 64 == 0 for each in sent if each().numel())
