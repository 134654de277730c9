"""What rows pass through between wire and device; a GPU's part of it is played by this memory."""

import logging

import pytest
import torch
from torch import Tensor

from runtime.engine.host_memory import HostMemory, host_memory

CPU, GPU = torch.device("cpu"), torch.device("cuda")


class Pinned:
    """Hands out memory as torch does pinned memory, and notes how much."""

    def __init__(self) -> None:
        self.taken: list[tuple[tuple[int, ...], torch.dtype]] = []

    def __call__(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        self.taken.append((shape, dtype))
        return torch.empty(shape, dtype=dtype)


def test_on_a_cpu_rows_leave_from_where_they_are() -> None:
    host = host_memory(CPU)
    rows = torch.arange(6.0).reshape(2, 3)
    assert host.to_device(rows) is rows
    assert host.to_host(rows) is rows
    assert host.to_host(rows[:, 1:]).is_contiguous()
    assert not host.empty(2, 3, dtype=torch.bfloat16).is_pinned()


def test_for_a_gpu_rows_are_written_into_pinned_memory() -> None:
    pinned = Pinned()
    host = host_memory(GPU, pinned=pinned)
    rows = host.empty(4, 8, dtype=torch.float16)
    assert (rows.shape, rows.dtype) == ((4, 8), torch.float16)
    assert pinned.taken[-1] == ((4, 8), torch.float16)


def test_rows_come_back_whole_in_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[torch.device] = []

    class Stream:
        def __init__(self, device: torch.device) -> None:
            self._device = device

        def record_event(self) -> "Stream":
            return self

        def synchronize(self) -> None:
            waited.append(self._device)

    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    pinned = Pinned()
    rows = torch.arange(12.0).reshape(3, 4)
    landing = HostMemory(GPU, pinned=pinned).start_to_host(rows[:, 1:3])
    assert not waited
    landed = landing()
    assert landed.is_contiguous()
    assert torch.equal(landed, rows[:, 1:3])
    assert pinned.taken == [((3, 2), torch.float32)]
    assert waited == [GPU]


def test_where_memory_cannot_be_pinned_it_says_so_and_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        raise RuntimeError("cannot lock pages")

    with caplog.at_level(logging.WARNING):
        host = host_memory(GPU, pinned=refuse)
    assert "not pinned, which is slower: cannot lock pages" in caplog.text
    assert "ulimit -l" in caplog.text
    assert host.empty(2, 2, dtype=torch.float32).shape == (2, 2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gets_and_gives_rows_by_pinned_memory() -> None:
    host = host_memory(GPU)
    rows = host.empty(64, 128, dtype=torch.bfloat16)
    rows.copy_(torch.randn(64, 128))
    there = host.to_device(rows)
    back = host.to_host(there)
    assert rows.is_pinned()
    assert back.is_pinned()
    assert torch.equal(back, rows)
