"""What an agent finds on its machine: GPUs, memory, and a port that stays its own."""

import os
import random
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE

import psutil
import pytest
from emulated_cluster import emulation_of

from runtime.agent.gpus import find_gpus
from runtime.membership.data_address import AddressError, choose_port, data_endpoint
from runtime.membership.hardware import (
    detect_hardware,
    emulated_hardware,
)
from runtime.protocol.control import Gpu, Hardware
from tests.programs import started

LOOPBACK = "127.0.0.1"


class Clock:
    """Time passes only by sleeping."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, wait_s: float) -> None:
        self.now_s += wait_s


def install_nvidia_smi(directory: Path, script: str) -> None:
    program = directory / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_the_budget_is_most_of_the_first_gpu_or_half_of_main_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    memory_bytes = psutil.virtual_memory().total

    def detected(budget_bytes: int | None) -> Hardware:
        gpus = [gpu.announced for gpu in find_gpus({})]
        return detect_hardware(memory_budget_bytes=budget_bytes, relative_speed=0.5, gpus=gpus)

    hardware = detected(None)
    assert hardware.gpus == ()
    assert hardware.memory_bytes == memory_bytes
    assert hardware.memory_budget_bytes == memory_bytes // 2
    assert hardware.relative_speed == 0.5
    install_nvidia_smi(tmp_path, "echo '00000000:01:00.0, GPU-1, 1000, [N/A], Tesla T4'")
    assert detected(None).memory_budget_bytes == pytest.approx(900 << 20, abs=1)
    assert detected(7).memory_budget_bytes == 7


def test_an_nvidia_smi_that_fails_means_no_gpus_and_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    install_nvidia_smi(tmp_path, "exit 9")
    monkeypatch.setenv("PATH", str(tmp_path) + os.pathsep + os.environ["PATH"])
    assert find_gpus({}) == ()
    assert "nvidia-smi does not work" in caplog.text


def test_a_port_is_kept_while_it_is_free_and_another_taken_when_it_stays_in_use() -> None:
    clock = Clock()
    port = choose_port(LOOPBACK, wanted=0, kept=None, clock=clock, sleep=clock.sleep)
    assert choose_port(LOOPBACK, wanted=0, kept=port, clock=clock, sleep=clock.sleep) == port
    assert clock.now_s == 0
    with socket.create_server((LOOPBACK, port)):
        other = choose_port(LOOPBACK, wanted=0, kept=port, clock=clock, sleep=clock.sleep)
        assert other != port
        assert clock.now_s >= 5
        with pytest.raises(AddressError, match=f"{port}.*--data-port"):
            choose_port(LOOPBACK, wanted=port, kept=None, clock=clock, sleep=clock.sleep)


def test_a_port_that_the_last_run_is_just_leaving_is_waited_for() -> None:
    clock = Clock()
    leaving = socket.create_server((LOOPBACK, 0))
    port = leaving.getsockname()[1]

    def sleep(wait_s: float) -> None:
        clock.sleep(wait_s)
        if clock.now_s >= 1:
            leaving.close()

    assert choose_port(LOOPBACK, wanted=0, kept=port, clock=clock, sleep=sleep) == port
    assert 1 <= clock.now_s < 2


def drawing(*ports: int) -> Callable[[range], int]:
    """These at first, then any."""
    first = list(ports)
    return lambda range_: first.pop(0) if first else random.choice(range_)


def test_a_new_port_is_none_that_connections_get_and_one_in_use_is_passed_over() -> None:
    assert 20_000 <= choose_port(LOOPBACK, wanted=0, kept=None) < 30_000
    with socket.create_server((LOOPBACK, 0)) as server:
        taken = server.getsockname()[1]
        draw = drawing(taken, taken)
        assert choose_port(LOOPBACK, wanted=0, kept=None, draw=draw) != taken
        never = choose_port(LOOPBACK, wanted=0, kept=None, draw=lambda ports: taken)
        assert never not in (0, taken)


def test_a_port_that_was_chosen_is_not_chosen_again_before_anything_is_bound_to_it() -> None:
    first = choose_port(LOOPBACK, wanted=0, kept=None)
    assert choose_port(LOOPBACK, wanted=0, kept=None, draw=drawing(first, first)) != first


@pytest.mark.processes
def test_a_port_that_another_process_was_given_is_not_given_here() -> None:
    choosing = (
        "from runtime.membership.data_address import choose_port\n"
        f"print(choose_port({LOOPBACK!r}, wanted=0, kept=None), flush=True)\n"
        "input()"
    )
    with started([sys.executable, "-c", choosing], stdin=PIPE, stdout=PIPE, text=True) as other:
        assert other.stdout is not None
        theirs = int(other.stdout.readline())
        clock = Clock()
        mine = choose_port(LOOPBACK, wanted=0, kept=theirs, clock=clock, sleep=clock.sleep)
        assert mine != theirs
        assert choose_port(LOOPBACK, wanted=0, kept=None, draw=drawing(theirs)) != theirs
        assert choose_port(LOOPBACK, wanted=theirs, kept=None) == theirs  # the operator's word
        other.communicate("\n")


def test_the_endpoint_is_what_peers_dial() -> None:
    assert data_endpoint(LOOPBACK, 9000) == "tcp://127.0.0.1:9000"


def test_an_emulated_node_shows_the_gpu_of_its_profile_and_says_so() -> None:
    hardware = emulated_hardware(emulation_of())
    assert hardware.emulated
    assert hardware.gpus == (Gpu(name="T4", memory_bytes=1_000_000_000),)
    assert hardware.memory_budget_bytes == 1_000_000_000
    assert not detect_hardware(memory_budget_bytes=5, relative_speed=1.0, gpus=()).emulated
