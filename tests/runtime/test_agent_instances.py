"""An agent's whole-model instances: begun, told of, kept over generations, refused, and ended."""

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from instance_rig import COMMAND, run, wait_until
from pydantic import ValidationError

from planner.domain.instance import BACKENDS, Backend
from runtime.agent.instance_specs import CannotRun, InstanceSettings, spec_of
from runtime.agent.instances import InstanceManager, goes_on, with_instances
from runtime.agent.main import main
from runtime.instances.process import ServerProcess
from runtime.protocol.control import DesiredState, ObservedState
from runtime.protocol.instance_orders import AssignedInstance, ObservedInstance
from runtime.protocol.instances import HelixInstance, VllmInstance
from runtime.protocol.phases import Phase

pytestmark = pytest.mark.processes

SETTINGS = InstanceSettings(
    host="127.0.0.1",
    memory_budget_bytes=1000,
    memory_bytes=(4000,),
    gpus=(),
    gpu_budgets_bytes=(),
    relative_speed=0.5,
    threads=2,
    emulated=False,
    vllm_command=COMMAND,
)


def order(
    name: str = "n1", *, model: str = "m", backend: Backend = "vllm", gpus: tuple[int, ...] = (0,)
) -> AssignedInstance:
    return AssignedInstance(
        name=name, backend=backend, model_name="llama", checkpoint=model, gpus=gpus, api_key="k"
    )


@asynccontextmanager
async def keeper(
    directory: Path,
    *,
    settings: InstanceSettings = SETTINGS,
    is_free: Callable[[], bool] = lambda: True,
) -> AsyncIterator[InstanceManager]:
    """Run until the block ends, which nothing of it outlives."""
    kept = InstanceManager(
        settings=settings,
        directory=directory,
        on_change=lambda: None,
        is_free=is_free,
        look_every_s=0.05,
    )
    running = asyncio.create_task(kept.run())
    try:
        yield kept
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        pids = pids_in(directory)
        hurry = asyncio.Event()
        hurry.set()
        await kept.stop(hurry=hurry, within_s=0)
        await kept.close()
        assert not kept.holds_any
        assert not any(psutil.pid_exists(pid) for pid in pids)


def pids_in(directory: Path) -> list[int]:
    return [int(json.loads(path.read_text())["pid"]) for path in directory.glob("*.pid")]


def conditions(kept: InstanceManager) -> dict[str, str]:
    return {one.name: one.condition for one in kept.observed()}


def test_what_is_wanted_begins_and_ends_when_it_is_wanted_no_more(tmp_path: Path) -> None:
    async def check() -> None:
        async with keeper(tmp_path) as kept:
            kept.want((order("a"), order("b", gpus=(1,))))
            await wait_until(lambda: conditions(kept) == {"a": "ready", "b": "ready"})
            ports = {one.port for one in kept.observed()}
            assert len(ports) == 2
            assert None not in ports
            kept.want((order("b", gpus=(1,)),))
            await wait_until(lambda: conditions(kept) == {"b": "ready"})
            assert len(pids_in(tmp_path)) == 1

    run(check())


def test_an_instance_whose_port_a_stranger_took_begins_at_another(tmp_path: Path) -> None:
    waiting = tmp_path / "begin.py"
    waiting.write_text(
        "import os, pathlib, sys, time\n"
        f"while not pathlib.Path({str(tmp_path / 'go')!r}).exists():\n"
        "    time.sleep(0.01)\n"
        f"os.execv(sys.executable, [*{COMMAND!r}, *sys.argv[1:]])\n"
    )
    settings = replace(SETTINGS, vllm_command=(sys.executable, str(waiting)))

    async def check() -> None:
        async with keeper(tmp_path, settings=settings) as kept:
            kept.want((order("a"),))
            await wait_until(lambda: pids_in(tmp_path))
            (port,) = (one.port for one in kept.observed())
            assert port is not None
            with socket.create_server(("127.0.0.1", port)):
                (tmp_path / "go").touch()
                await wait_until(lambda: conditions(kept) == {"a": "ready"})
                assert {one.port for one in kept.observed()} != {port}

    run(check())


def test_an_instance_that_the_next_generation_wants_too_goes_on(tmp_path: Path) -> None:
    async def check() -> None:
        async with keeper(tmp_path) as kept:
            kept.want((order(),))
            await wait_until(lambda: conditions(kept) == {"n1": "ready"})
            (pid,) = pids_in(tmp_path)
            kept.want((order(), order("more", gpus=(1,))))
            await wait_until(lambda: conditions(kept) == {"n1": "ready", "more": "ready"})
            assert pid in pids_in(tmp_path)

    run(check())


def test_nothing_begins_while_a_stage_runs(tmp_path: Path) -> None:
    async def check() -> None:
        stages = [True]
        async with keeper(tmp_path, is_free=lambda: not stages) as kept:
            kept.want((order(),))
            await wait_until(lambda: conditions(kept) == {"n1": "idle"})
            assert not kept.holds_any
            stages.clear()
            await wait_until(lambda: conditions(kept) == {"n1": "ready"})

    run(check())


def test_one_that_dies_is_told_of_with_the_end_of_its_log(tmp_path: Path) -> None:
    async def check() -> None:
        async with keeper(tmp_path) as kept:
            kept.want((order(model="m:mode=dies"),))
            await wait_until(lambda: conditions(kept) == {"n1": "waiting"})
            (told,) = kept.observed()
            assert "exited with status" in told.message

    run(check())


def test_what_an_agent_that_was_killed_left_running_is_ended(tmp_path: Path) -> None:
    async def check() -> None:
        orphan = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "input()", stdin=asyncio.subprocess.PIPE, start_new_session=True
        )
        born = psutil.Process(orphan.pid).create_time()
        (tmp_path / "old.pid").write_text(json.dumps({"pid": orphan.pid, "born": born}))
        async with keeper(tmp_path):
            await asyncio.wait_for(orphan.wait(), 90)

    run(check())


@pytest.mark.parametrize(
    ("settings", "wanted", "why"),
    [
        (replace(SETTINGS, emulated=True), order(), "start the agent without --emulate"),
        (
            replace(SETTINGS, host="192.0.2.1"),
            order(backend="transformers"),
            "knows no API keys, and others reach 192.0.2.1",
        ),
        (SETTINGS, order(model="--trust"), "'--trust' reads as an option"),
        (replace(SETTINGS, gpus=(4, 5)), order(gpus=(2,)), "GPU 2 is wanted and this node has 2"),
    ],
)
def test_what_this_machine_cannot_run_is_refused_with_the_remedy(
    settings: InstanceSettings, wanted: AssignedInstance, why: str
) -> None:
    with pytest.raises(CannotRun, match=why):
        spec_of(wanted, port=1, settings=settings, beside=(wanted,))


@pytest.mark.parametrize("backend", BACKENDS)
def test_whatever_name_an_order_can_have_an_instance_can_have_too(backend: Backend) -> None:
    longest = order("n" * 64, backend=backend)
    assert spec_of(longest, port=1, settings=SETTINGS, beside=(longest,)).name == "n" * 64
    with pytest.raises(ValidationError):
        order("n" * 65, backend=backend)


@pytest.mark.parametrize(
    ("command", "why"), [("", "it is empty"), ("/opt/vllm 'serve", "is no command (No closing")]
)
def test_a_command_that_starts_nothing_is_refused_when_the_agent_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, why: str
) -> None:
    here = ["--server", "http://127.0.0.1:9", "--data-dir", str(tmp_path)]
    with pytest.raises(SystemExit):
        main([*here, "--vllm-command", command])
    assert f"argument --vllm-command: {why}" in capsys.readouterr().err.replace(f"{command!r} ", "")


def test_a_refusal_is_told_as_what_the_instance_waits_for(tmp_path: Path) -> None:
    async def check() -> None:
        async with keeper(tmp_path, settings=replace(SETTINGS, emulated=True)) as kept:
            kept.want((order(),))
            await wait_until(lambda: conditions(kept) == {"n1": "waiting"})
            assert "runs no model" in kept.observed()[0].message

    run(check())


def test_our_engine_gets_its_share_of_the_node_and_its_speed() -> None:
    orders = (order("a", backend="helix"), order("b", backend="helix", gpus=(1,)))
    spec = spec_of(orders[0], port=1, settings=SETTINGS, beside=orders)
    assert isinstance(spec, HelixInstance)
    assert spec.memory_budget_bytes == 500
    assert (spec.relative_speed, spec.threads, spec.gpus) == (0.5, 2, ())
    on_gpus = replace(SETTINGS, gpus=(2, 5), gpu_budgets_bytes=(70, 80))
    both = order(backend="helix", gpus=(0, 1))
    spec = spec_of(both, port=1, settings=on_gpus, beside=(both,))
    assert isinstance(spec, HelixInstance)
    assert (spec.memory_budget_bytes, spec.gpus) == (140, (2, 5))


def test_vllm_gets_its_share_of_the_node_its_threads_and_the_options_of_the_machine() -> None:
    first = order("a").model_copy(update={"vllm_flags": ("--enforce-eager",)})
    orders = (first, order("b", gpus=(1,)))
    settings = replace(SETTINGS, vllm_arguments=("--max-num-seqs", "8"))
    spec = spec_of(first, port=1, settings=settings, beside=orders)
    assert isinstance(spec, VllmInstance)
    assert (spec.gpu_memory_utilization, spec.cpu_threads) == (500 / 4000, 2)
    assert spec.extra_arguments == ("--enforce-eager", "--max-num-seqs", "8")


def test_a_share_of_gpus_is_of_the_memory_of_each() -> None:
    on_gpus = replace(SETTINGS, gpus=(2, 5), gpu_budgets_bytes=(90, 72), memory_bytes=(100, 80))
    both = order(gpus=(0, 1))
    spec = spec_of(both, port=1, settings=on_gpus, beside=(both,))
    assert isinstance(spec, VllmInstance)
    assert (spec.gpu_memory_utilization, spec.cpu_threads) == (0.9, None)
    of_all = replace(on_gpus, gpu_budgets_bytes=(), memory_budget_bytes=80)
    spec = spec_of(both, port=1, settings=of_all, beside=(both,))
    assert isinstance(spec, VllmInstance)
    assert spec.gpu_memory_utilization == 0.5


def told(condition: str, message: str = "", progress: float | None = None) -> ObservedInstance:
    return ObservedInstance(name=condition, condition=condition, message=message, progress=progress)


IDLE = ObservedState(generation=3, phase=Phase.IDLE)


@pytest.mark.parametrize(
    ("instances", "phase", "message"),
    [
        ((told("ready"), told("ready")), Phase.READY, ""),
        ((told("ready"), told("starting", "loading")), Phase.LOADING, "loading"),
        ((told("ready"), told("idle")), Phase.LOADING, ""),
        ((told("ready"), told("waiting", "died")), Phase.FAILED, "instance waiting: died"),
        ((told("unwell", "hangs"), told("starting")), Phase.FAILED, "instance unwell: hangs"),
    ],
)
def test_a_node_is_as_far_as_the_least_ready_of_its_instances(
    instances: tuple[ObservedInstance, ...], phase: Phase, message: str
) -> None:
    seen = with_instances(IDLE, instances, wanted=2)
    assert (seen.phase, seen.message, seen.instances) == (phase, message, instances)


def test_a_node_whose_instances_still_end_is_stopping() -> None:
    seen = with_instances(IDLE, (told("draining"),), wanted=0)
    assert (seen.phase, seen.message) == (Phase.STOPPING, "ending draining")
    assert with_instances(IDLE, (), wanted=0) == IDLE


def test_a_node_that_is_left_out_serves_on_until_the_next_plan_has_taken_over() -> None:
    assert goes_on(DesiredState(generation=4, continues=True))
    assert not goes_on(DesiredState(generation=4))
    assert not goes_on(DesiredState(generation=4, continues=True, instances=(order(),)))


def test_a_node_has_read_what_the_slowest_of_its_instances_has() -> None:
    assert with_instances(IDLE, (told("starting", progress=0.5),), wanted=1).loaded_ratio == 0.5


def test_a_server_process_ends_what_is_left_over_only_if_it_is_that_process(
    tmp_path: Path,
) -> None:
    async def check() -> None:
        other = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "input()", stdin=asyncio.subprocess.PIPE, start_new_session=True
        )
        (tmp_path / "old.pid").write_text(json.dumps({"pid": other.pid, "born": 1.0}))
        await ServerProcess(tmp_path, name="old").end_left_over()
        assert other.returncode is None
        other.kill()
        await other.wait()

    run(check())
