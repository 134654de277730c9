"""Which GPUs an agent finds, in outputs of nvidia-smi and rocm-smi, and which node gets which."""

import argparse
import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import PIPE

import psutil
import pytest
from ended import has_ended
from fake_web import PATIENCE_S, TOKEN, FakeWeb, wait_until

from runtime import platforms
from runtime.agent import gpus
from runtime.agent.gpus import (
    FoundGpu,
    GpuInUse,
    Vendor,
    claimed,
    find_gpus,
    groups_of,
    parse_nvidia_smi,
    parse_rocm_smi,
    pinned,
    visible,
)
from runtime.agent.machine import NodeAgent, is_one_node, node_agents, run_agents
from runtime.agent.options import agent_parser
from tests.programs import started

# In the order of nvidia-smi of a driver that lists the display's GPU first.
FOUR_OF_TWO_KINDS = """\
00000000:B3:00.0, GPU-4a0c7e52-0f0d-9d2b-5f6b-0d9e6a7d1c11, 24576, [N/A], NVIDIA GeForce RTX 3090
00000000:17:00.0, GPU-9f3be0a1-7c44-1e0e-8b59-61f7f2b1d8aa, 81920, Disabled, NVIDIA A100 80GB PCIe
00000000:65:00.0, GPU-1d2e3f40-5a6b-7c8d-9e0f-a1b2c3d4e5f6, 24576, [N/A], NVIDIA GeForce RTX 3090
00000001:01:00.0, GPU-77aa88bb-99cc-00dd-11ee-22ff33445566, 81920, Disabled, NVIDIA A100 80GB PCIe
"""
WITH_MIG_AND_SHARED = """\
00000000:01:00.0, GPU-aaaaaaaa-0000-0000-0000-000000000000, 40960, Enabled, NVIDIA A100-SXM4-40GB
00000009:01:00.0, GPU-bbbbbbbb-0000-0000-0000-000000000000, [N/A], [N/A], NVIDIA GB10
00000000:41:00.0, GPU-cccccccc-0000-0000-0000-000000000000, 15360, [N/A], Tesla T4
"""
# ROCm 6 on a desktop: the card, and the GPU within the CPU.
CARD_AND_CPU = """\
WARNING: AMD GPU device(s) is/are in a low-power state. Check power control/runtime_status

{
"card0": {"Unique ID": "0x2464e2c1f0a77d1", "VRAM Total Memory (B)": "17163091968",
 "VRAM Total Used Memory (B)": "692142080", "PCI Bus": "0000:03:00.0",
 "Card Series": "Navi 21 [Radeon RX 6800/6800 XT / 6900 XT]", "Card Model": "0x73bf",
 "Card Vendor": "Advanced Micro Devices, Inc. [AMD/ATI]", "Node ID": "1", "GUID": "45534"},
"card1": {"Unique ID": "N/A", "VRAM Total Memory (B)": "67108864",
 "VRAM Total Used Memory (B)": "26079232", "PCI Bus": "0000:0E:00.0", "Card Series": "Raphael",
 "Card Model": "0x164e", "Node ID": "2", "GUID": "52156"},
"system": {"Driver version": "6.7.0"}}
"""
# ROCm 5 writes "Card series" and no node; this box's slots are not in the order of its cards.
OLDER_AND_CROSSED = """{
"card0": {"Unique ID": "0x18f68e602b8a790f", "VRAM Total Memory (B)": "68702699520",
 "PCI Bus": "0000:C3:00.0", "Card series": "AMD Instinct MI210", "Card model": "0x0c34"},
"card1": {"Unique ID": "0x5d9a5b1b3f7e2c04", "VRAM Total Memory (B)": "68702699520",
 "PCI Bus": "0000:43:00.0", "Card series": "AMD Instinct MI210", "Card model": "0x0c34"}}
"""


def of(found: Sequence[FoundGpu]) -> list[tuple[str, int, int]]:
    return [(gpu.pci, gpu.index, gpu.memory_bytes >> 30) for gpu in found]


def test_nvidia_gpus_are_counted_by_pci_address_as_cuda_is_told_to() -> None:
    found = parse_nvidia_smi(FOUR_OF_TWO_KINDS)
    assert of(found) == [
        ("0000:17:00.0", 0, 80),
        ("0000:65:00.0", 1, 24),
        ("0000:b3:00.0", 2, 24),
        ("0001:01:00.0", 3, 80),
    ]
    assert {gpu.vendor for gpu in found} == {Vendor.NVIDIA}


def test_a_split_gpu_and_one_that_shares_memory_are_left_out_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert of(parse_nvidia_smi(WITH_MIG_AND_SHARED)) == [("0000:41:00.0", 1, 15)]
    assert "A100-SXM4-40GB" in caplog.text
    assert "MIG" in caplog.text
    assert "GB10" in caplog.text


def test_amd_gpus_are_read_from_old_and_new_rocm_smi() -> None:
    (card,) = parse_rocm_smi(CARD_AND_CPU)
    assert (card.pci, card.memory_bytes) == ("0000:03:00.0", 17_163_091_968)
    assert card.name.startswith("Navi 21")
    assert card.uid == "GPU-02464e2c1f0a77d1"
    crossed = parse_rocm_smi(OLDER_AND_CROSSED)
    assert [(gpu.pci, gpu.index) for gpu in crossed] == [("0000:43:00.0", 1), ("0000:c3:00.0", 0)]
    assert {gpu.name for gpu in crossed} == {"AMD Instinct MI210"}


@pytest.mark.parametrize("printed", ["", "WARNING: no GPU\n", "{}", "{torn", '{"card0": []}'])
def test_a_tool_that_tells_of_no_gpu_finds_none(printed: str) -> None:
    assert parse_rocm_smi(printed) == ()
    assert parse_nvidia_smi(printed) == ()


@pytest.mark.parametrize(
    ("variables", "left"),
    [
        ({}, [0, 1, 2, 3]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"CUDA_VISIBLE_DEVICES": "2,0"}, [2, 0]),
        ({"CUDA_VISIBLE_DEVICES": "1,-1,2"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-77aa"}, [3]),
        ({"CUDA_VISIBLE_DEVICES": "7,1"}, []),
        ({"ROCR_VISIBLE_DEVICES": "0"}, [0, 1, 2, 3]),
    ],
)
def test_an_agent_has_the_gpus_that_its_environment_leaves_it(
    variables: dict[str, str], left: list[int]
) -> None:
    found = visible(parse_nvidia_smi(FOUR_OF_TWO_KINDS), variables)
    assert [gpu.index for gpu in found] == left


@pytest.mark.parametrize(
    ("variables", "left"),
    [
        ({"ROCR_VISIBLE_DEVICES": "GPU-18f68e602b8a790f"}, ["0000:c3:00.0"]),
        ({"ROCR_VISIBLE_DEVICES": "1"}, ["0000:43:00.0"]),
        ({"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "0"}, ["0000:43:00.0"]),
        ({"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "1"}, []),
    ],
)
def test_variables_of_rocm_count_what_those_before_left(
    variables: dict[str, str], left: list[str]
) -> None:
    found = visible(parse_rocm_smi(OLDER_AND_CROSSED), variables)
    assert [gpu.pci for gpu in found] == left


def test_each_gpu_is_a_node_or_each_group_of_a_kind() -> None:
    found = parse_nvidia_smi(FOUR_OF_TWO_KINDS)

    def indices(tensor_parallel: int | None) -> list[list[int]]:
        groups = groups_of(found, tensor_parallel=tensor_parallel)
        return [[gpu.index for gpu in group] for group in groups]

    assert indices(None) == indices(1) == [[0], [1], [2], [3]]
    assert indices(2) == [[0, 3], [1, 2]]
    assert groups_of((), tensor_parallel=2) == ()
    three = parse_nvidia_smi(FOUR_OF_TWO_KINDS.replace("81920", "24576").replace("A100", "A30"))
    assert len(groups_of(three[:3], tensor_parallel=2)) == 2


@pytest.mark.parametrize(
    ("listing", "parse"),
    [(FOUR_OF_TWO_KINDS, parse_nvidia_smi), (OLDER_AND_CROSSED, parse_rocm_smi)],
)
def test_a_pinned_process_finds_its_own_gpus_only(
    listing: str, parse: type[list[FoundGpu]]
) -> None:
    found = parse(listing)
    seen = []
    for group in groups_of(found, tensor_parallel=None):
        environment = pinned(group, {"PATH": "/bin", "HIP_VISIBLE_DEVICES": "0"})
        assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
        assert environment["PATH"] == "/bin"
        (own,) = visible(found, environment)
        assert (own,) == group
        seen.append(own)
    assert seen == list(found)


def install(folder: Path, name: str, printed: str) -> None:
    (folder / f"{name}.txt").write_text(printed)
    (folder / name).write_text(f"#!/bin/sh\n/bin/cat {folder / name}.txt\n")
    (folder / name).chmod(0o755)


def test_of_both_vendors_those_count_that_pytorch_was_built_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    install(tmp_path, "nvidia-smi", FOUR_OF_TWO_KINDS)
    install(tmp_path, "rocm-smi", CARD_AND_CPU)
    monkeypatch.setenv("PATH", str(tmp_path))
    for version, vendor, count in (("2.13.0", Vendor.NVIDIA, 4), ("2.13.0+rocm6.4", Vendor.AMD, 1)):
        monkeypatch.setattr(gpus.metadata, "version", lambda _name, version=version: version)
        found = find_gpus({})
        assert ({gpu.vendor for gpu in found}, len(found)) == ({vendor}, count)
    assert "Navi 21" in caplog.text
    assert "RTX 3090" in caplog.text


@pytest.fixture
def pci_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As Linux shows the devices of FOUR_OF_TWO_KINDS."""
    folder = tmp_path / "devices"
    for gpu in parse_nvidia_smi(FOUR_OF_TWO_KINDS):
        (folder / gpu.pci).mkdir(parents=True)
        (folder / gpu.pci / "uevent").touch()
    monkeypatch.setattr(platforms, "_PCI_DEVICES", folder)
    return folder


def test_no_two_agents_have_one_gpu_unless_each_was_told_its_memory(pci_devices: Path) -> None:
    first, second, *_ = parse_nvidia_smi(FOUR_OF_TWO_KINDS)
    with claimed([first], shared=False):
        with claimed([second], shared=False):
            pass
        for shared in (False, True):
            with (
                pytest.raises(GpuInUse, match=r"0000:17:00\.0.*--memory"),
                claimed([second, first], shared=shared),
            ):
                pass
        with claimed([second], shared=False):
            pass
    with (
        claimed([first], shared=True),
        claimed([first], shared=True),
        pytest.raises(GpuInUse),
        claimed([first], shared=False),
    ):
        pass


def options_of(data_dir: Path, *words: str) -> tuple[list[str], argparse.Namespace]:
    argv = ["--server", "http://127.0.0.1:8000", "--data-dir", str(data_dir), *words]
    return argv, agent_parser().parse_args(argv)


def test_nodes_of_a_machine_have_names_folders_and_ports_of_their_own(tmp_path: Path) -> None:
    groups = groups_of(parse_nvidia_smi(FOUR_OF_TWO_KINDS), tensor_parallel=None)
    argv, options = options_of(
        tmp_path, "--data-port", "7000", "--advertise", "192.0.2.1:9000", "--name", "box"
    )
    agents = node_agents(argv, options, groups)
    told = [agent_parser().parse_args(agent.command[4:]) for agent in agents]
    assert [one.name_suffix for one in told] == ["gpu0", "gpu1", "gpu2", "gpu3"]
    assert [one.data_port for one in told] == [7000, 7001, 7002, 7003]
    assert [one.advertise.port for one in told] == [9000, 9001, 9002, 9003]
    assert len({one.machine_uuid for one in told}) == 1
    assert len({one.data_dir for one in told}) == 4
    # One GPU less: the others are who they were.
    fewer = node_agents(argv, options, groups[1:])
    again = [agent_parser().parse_args(agent.command[4:]) for agent in fewer]
    assert [one.data_dir for one in again] == [one.data_dir for one in told[1:]]
    assert again[0].machine_uuid == told[0].machine_uuid


@pytest.mark.processes
def test_several_joins_succeed_only_if_none_is_refused() -> None:
    def ends(status: int) -> NodeAgent:
        command = (sys.executable, "-c", f"raise SystemExit({status})")
        return NodeAgent(name=f"gpu{status}", command=command, environment={})

    for statuses, joining, expected in (((0, 2), True, 2), ((0, 2), False, 0), ((2,), False, 2)):
        agents = [ends(status) for status in statuses]
        assert asyncio.run(run_agents(agents, must_all_end_well=joining)) == expected


@pytest.mark.processes
def test_an_agent_that_cannot_be_started_now_is_started_later(tmp_path: Path) -> None:
    late = tmp_path / "late"
    makes_it = f"cp {shutil.which('true')} {late}.part && mv {late}.part {late}"
    agents = [
        NodeAgent(name="gpu0", command=(str(late),), environment={}),
        NodeAgent(name="gpu1", command=("/bin/sh", "-c", makes_it), environment=dict(os.environ)),
    ]
    assert asyncio.run(run_agents(agents)) == 0


def test_what_is_left_over_of_a_group_shares_no_layer(tmp_path: Path) -> None:
    groups = groups_of(parse_nvidia_smi(FOUR_OF_TWO_KINDS)[:3], tensor_parallel=2)
    argv, options = options_of(tmp_path, "--tensor-parallel", "2")
    told = [
        agent_parser().parse_args(one.command[4:]) for one in node_agents(argv, options, groups)
    ]
    assert {one.name_suffix: one.tensor_parallel for one in told} == {"gpu0": 1, "gpu1-2": 2}


def test_a_machine_that_joined_as_one_node_stays_one(tmp_path: Path) -> None:
    groups = groups_of(parse_nvidia_smi(FOUR_OF_TWO_KINDS), tensor_parallel=None)
    assert not is_one_node(tmp_path, groups)
    assert is_one_node(tmp_path, groups[:1])
    (tmp_path / "gpu-0000-17-00.0").mkdir()
    assert not is_one_node(tmp_path, groups[:1])  # its other GPUs were taken out
    (tmp_path / "identity.json").touch()
    assert is_one_node(tmp_path, groups)


def joined(data_dir: Path) -> int:
    """How many agents of a machine know that they are members of a cluster."""
    files = data_dir.glob("gpu-*/identity.json")
    return sum("credential" in file.read_text() for file in files)


@pytest.mark.processes
def test_one_command_makes_each_group_of_gpus_a_node(tmp_path: Path) -> None:
    """An agent that dies comes back, and none outlives the one that started it."""
    install(tmp_path, "nvidia-smi", FOUR_OF_TWO_KINDS)
    data_dir = tmp_path / "data"
    options = ["--name", "box", "--data-dir", str(data_dir), "--tensor-parallel", "2"]
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    with FakeWeb() as web:
        command = [sys.executable, "-m", "runtime.agent.join", "join", web.url, *options]
        with started([*command, "--token", TOKEN], env=environment, stderr=PIPE) as machine:
            wait_until(lambda: joined(data_dir) == 2 or machine.poll(), what="both join")
            seen = {one.name: one.hardware for one in web.registrations}
            assert {name: [gpu.name for gpu in one.gpus] for name, one in seen.items()} == {
                "box-gpu0-3": ["NVIDIA A100 80GB PCIe"] * 2,
                "box-gpu1-2": ["NVIDIA GeForce RTX 3090"] * 2,
            }
            assert seen["box-gpu1-2"].memory_budget_bytes == int(24576 * 0.9 * (1 << 20))
            assert len({one.machine_uuid for one in web.registrations}) == 1
            agents = psutil.Process(machine.pid).children()
            pins = {agent.environ()["CUDA_VISIBLE_DEVICES"]: agent for agent in agents}
            assert set(pins) == {"0,3", "1,2"}
            assert {agent.environ()["CUDA_DEVICE_ORDER"] for agent in agents} == {"PCI_BUS_ID"}
            assert not any(TOKEN in " ".join(agent.cmdline()) for agent in agents)
            pins["0,3"].kill()
            wait_until(lambda: web.announcements, what="the agent that was killed is back")
            machine.send_signal(signal.SIGTERM)
            _, errors = machine.communicate(timeout=PATIENCE_S)
            assert machine.returncode == 0, errors.decode()
            assert b"Traceback" not in errors
        web.announcements.clear()
        with started(command, env=environment, stderr=PIPE) as machine:
            wait_until(lambda: len(web.announcements) == 2, what="both are back without a token")
            agents = psutil.Process(machine.pid).children()
            machine.kill()
            wait_until(lambda: all(map(has_ended, agents)), what="all have ended")
        assert len(web.registrations) == 2
