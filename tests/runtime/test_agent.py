"""A whole agent against a real server and real (fake) stages: joining, following, surviving."""

import asyncio
import errno
import os
import re
import socket
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import fake_profiler
import fake_stage
import psutil
import pytest
from agent_rig import ANNOUNCEMENT, Node, run, wants
from fake_web import PATIENCE_S, TOKEN, FakeWeb

from runtime.agent.agent import NodeRemoved
from runtime.membership.identity import DESIRED_FILE, DataDir, DataDirError, JoinRefused
from runtime.protocol.checkpoint_looks import MOST_LOOKS, LookOrder
from runtime.protocol.control import DesiredState
from runtime.protocol.endpoints import parse_endpoint
from runtime.protocol.phases import Phase
from runtime.protocol.profiling import ProfileOrder

pytestmark = pytest.mark.processes


@pytest.fixture(autouse=True)
def _children_import_what_we_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))


@pytest.fixture
def web() -> Iterator[FakeWeb]:
    with FakeWeb() as fake:
        yield fake


def is_listening() -> bool:
    with socket.socket() as dialler:
        place = parse_endpoint(ANNOUNCEMENT.data_endpoint)
        return dialler.connect_ex((place.host, place.port)) == 0


def test_a_node_joins_once_and_runs_what_is_pushed_until_told_otherwise(
    tmp_path: Path, web: FakeWeb
) -> None:
    async def life() -> None:
        node = Node(tmp_path, web)
        async with node.running(token=TOKEN):
            await node.until(lambda: web.last, what="a heartbeat")
            assert web.last is not None
            assert web.last.phase is Phase.IDLE
            await node.until(is_listening, what="others find the data port of an idle node")
            web.desired = wants(1, "loads until told")
            await node.until(
                lambda: web.last and (web.last.generation, web.last.phase) == (1, Phase.LOADING),
                what="generation 1 loads",
            )
            assert not is_listening(), "the port is the stage's"
            node.record.with_name("record.loads").touch()
            await node.until_ready(1)
            web.desired = wants(2)
            await node.until_ready(2)
            assert [generation for _, generation in node.starts] == [1, 2]
            assert len(node.living()) == 1
            web.desired = DesiredState(generation=3)
            await node.until(
                lambda: web.last and (web.last.generation, web.last.phase) == (3, Phase.IDLE),
                what="idle at generation 3",
            )
            assert not node.living()
            await node.until(is_listening, what="idle again")
        phases = [seen.phase for seen in web.observed if seen.generation == 1]
        assert phases.index(Phase.LOADING) < phases.index(Phase.READY)
        assert web.registrations[0].region == "eu"
        assert stat.S_IMODE((tmp_path / "data" / "identity.json").stat().st_mode) == 0o600
        assert web.announcements == []

    run(life())


def test_a_site_of_an_earlier_release_is_told_what_it_knows(
    tmp_path: Path, web: FakeWeb, caplog: pytest.LogCaptureFixture
) -> None:
    async def life() -> None:
        web.unknown_of_reach = {"listens", "measures"}
        node = Node(tmp_path, web)
        async with node.running(token=TOKEN):
            await node.until(lambda: len(web.observed) > 2, what="heartbeats without these fields")
        told = [record.getMessage() for record in caplog.records if "earlier" in record.message]
        assert len(told) == 2, "once for each"
        assert "does not know reach.listens" in told[0]

    run(life())


def goes_on(desired: DesiredState) -> DesiredState:
    return desired.model_copy(update={"continues": True})


def test_a_generation_that_goes_on_is_served_beside_the_next_by_the_same_process(
    tmp_path: Path, web: FakeWeb
) -> None:
    async def life() -> None:
        node = Node(tmp_path, web)
        async with node.running(token=TOKEN):
            web.desired = wants(1)
            await node.until_ready(1)
            web.desired = goes_on(wants(2))
            await node.until_ready(2)
            assert web.last is not None
            assert web.last.also_serving == (1,)
            web.desired = goes_on(DesiredState(generation=3))
            await node.until(lambda: web.last and web.last.generation == 3, what="generation 3")
            assert (web.last.phase, web.last.also_serving) == (Phase.IDLE, (1, 2))
            assert len(node.starts) == len(node.living()) == 1
            web.desired = DesiredState(generation=4)
            await node.until(lambda: not node.living(), what="the stage has gone")

    run(life())


def test_a_stage_without_room_for_the_next_generation_makes_way_for_it(
    tmp_path: Path, web: FakeWeb
) -> None:
    async def life() -> None:
        node = Node(tmp_path, web)
        async with node.running(token=TOKEN):
            web.desired = wants(1, "has no room")
            await node.until_ready(1)
            web.desired = goes_on(wants(2, "has no room"))
            await node.until_ready(2)
            assert [generation for _, generation in node.starts] == [1, 2]
            assert len(node.living()) == 1

    run(life())


def test_a_restarted_node_is_the_same_node_and_needs_no_token(tmp_path: Path, web: FakeWeb) -> None:
    async def life() -> None:
        node = Node(tmp_path, web)
        web.desired = wants(1)
        async with node.running(token=TOKEN):
            await node.until_ready(1)
        web.observed.clear()
        async with node.running():
            await node.until_ready(1)
        assert len(web.registrations) == 1
        assert web.announcements == [ANNOUNCEMENT]
        assert [generation for _, generation in node.starts] == [1, 1]

    run(life())


def test_a_push_that_is_lost_is_noticed_at_the_next_heartbeat(tmp_path: Path, web: FakeWeb) -> None:
    async def life() -> None:
        node = Node(tmp_path, web)
        web.is_streaming = False
        async with node.running(token=TOKEN):
            await node.until(lambda: web.last, what="a heartbeat")
            web.desired = wants(1)
            await node.until_ready(1)

    run(life())


def test_a_generation_that_goes_back_is_followed_when_heartbeats_say_so(
    tmp_path: Path, web: FakeWeb
) -> None:
    async def life() -> None:
        node = Node(tmp_path, web)
        web.desired = wants(5)
        async with node.running(token=TOKEN):
            await node.until_ready(5)
            web.desired = wants(2)
            await node.until_ready(2)

    run(life())


def test_the_stage_runs_on_while_the_server_is_away_and_is_told_of_afterwards(
    tmp_path: Path, web: FakeWeb
) -> None:
    async def life() -> None:
        node = Node(tmp_path, web)
        web.desired = wants(1)
        async with node.running(token=TOKEN) as task:
            await node.until_ready(1)
            await asyncio.to_thread(web.stop)
            pid = node.living()[0]
            await asyncio.sleep(0.5)
            assert not task.done()
            assert psutil.pid_exists(pid)
            web.observed.clear()
            await asyncio.to_thread(web.start)
            await node.until_ready(1)
            assert node.living() == [pid]

    run(life())


def test_a_node_that_starts_while_the_server_is_away_goes_on_with_what_it_ran(
    tmp_path: Path, web: FakeWeb
) -> None:
    async def life() -> None:
        node = Node(tmp_path, web)
        web.desired = wants(1)
        async with node.running(token=TOKEN):
            await node.until_ready(1)
        await asyncio.to_thread(web.stop)
        web.observed.clear()
        async with node.running():
            await node.until(node.living, what="the stage was started again")
            pid = node.living()[0]
            await asyncio.to_thread(web.start)
            await node.until_ready(1)
            await node.until(lambda: web.announcements, what="it announced itself")
            assert node.living() == [pid]

    run(life())


def test_a_new_node_waits_for_a_server_that_is_in_trouble(tmp_path: Path, web: FakeWeb) -> None:
    async def life() -> None:
        web.troubled_answers = 2
        await Node(tmp_path, web).join(token=TOKEN)
        assert len(web.registrations) == 1

    run(life())


def test_a_failed_stage_is_told_and_tried_again(tmp_path: Path, web: FakeWeb) -> None:
    async def life() -> None:
        node = Node(tmp_path, web)
        web.desired = wants(1, "fails")
        async with node.running(token=TOKEN):
            told = r"checkpoint lacks tensor x; copy it again \(failed \d+ times; is tried again\)"
            await node.until(
                lambda: any(
                    seen.phase is Phase.FAILED and re.fullmatch(told, seen.message)
                    for seen in web.observed
                ),
                what="the stage failed twice",
            )
            web.desired = wants(2)
            await node.until_ready(2)

    run(life())


def test_a_stage_that_hangs_is_ended_told_and_started_again(
    tmp_path: Path, web: FakeWeb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fake stage reports once and never again."""
    monkeypatch.setattr("runtime.agent.reconcile.HANGS_AFTER_S", 0.5)

    async def life() -> None:
        node = Node(tmp_path, web)
        web.desired = wants(1)
        async with node.running(token=TOKEN):
            await node.until(lambda: len(node.starts) >= 2, what="the stage was started again")
            await node.until(
                lambda: any(
                    seen.phase is Phase.FAILED and "the stage hung" in seen.message
                    for seen in web.observed
                ),
                what="it was told that the stage hung, this time or a later one",
            )

    run(life())


def test_an_agent_stops_though_something_changes_at_that_very_moment(
    tmp_path: Path, web: FakeWeb
) -> None:
    """Each wait of its loops is over as it is cancelled, which must not be taken for a wake-up."""

    async def life() -> None:
        node = Node(tmp_path, web)
        web.desired = wants(1)  # a stage's silence is waited for with a timeout
        await node.join(token=TOKEN)
        for ticks in range(5):
            web.observed.clear()
            async with node.running() as task:
                await node.until_ready(1)
                node.stopped.set()
                for _ in range(ticks):
                    await asyncio.sleep(0)
                assert node.agent is not None
                node.agent._want(wants(2))
                async with asyncio.timeout(PATIENCE_S):
                    await asyncio.wait([task])

    run(life())


def test_a_node_that_was_removed_stops_its_stage_and_says_so(tmp_path: Path, web: FakeWeb) -> None:
    async def life() -> None:
        node = Node(tmp_path, web)
        web.desired = wants(1)
        async with node.running(token=TOKEN) as task:
            await node.until_ready(1)
            web.remove_all()
            with pytest.raises(NodeRemoved, match="join again"):
                await task
            assert not node.living()
            with pytest.raises(JoinRefused, match="--token"):
                await node.join()
            web.unused_tokens.add("hlxj_second")
            await node.join(token="hlxj_second")
            assert web.registrations[0].node_uuid == web.registrations[1].node_uuid

    run(life())


def test_a_gateway_that_lets_nobody_in_ends_no_stage(tmp_path: Path, web: FakeWeb) -> None:
    async def life() -> None:
        node = Node(tmp_path, web)
        web.desired = wants(1)
        async with node.running(token=TOKEN):
            await node.until_ready(1)
            pids = node.living()
            web.is_gated = True
            await node.until(lambda: web.gated_answers > 2, what="heartbeats are refused")
            web.is_gated = False
            told = len(web.observed)
            await node.until(lambda: len(web.observed) > told, what="it is heard again")
            assert node.living() == pids
        web.is_gated = True
        await node.join()  # as of the last run

    run(life())


def test_a_data_directory_belongs_to_one_name(tmp_path: Path, web: FakeWeb) -> None:
    async def life() -> None:
        node = Node(tmp_path, web)
        await node.join(token=TOKEN)
        with pytest.raises(JoinRefused, match=r"belongs to 'n1'.*another --data-dir"):
            await node.join(name="n2")

    run(life())


def test_a_data_directory_is_used_by_one_process_at_a_time(tmp_path: Path) -> None:
    data_dir = DataDir(tmp_path)
    with data_dir.locked(), pytest.raises(DataDirError, match="in use"), data_dir.locked():
        pass
    with data_dir.locked():
        pass


def test_a_restart_on_a_full_disk_writes_nothing_that_has_not_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_dir = DataDir(tmp_path)
    identity = data_dir.load_identity(fresh_uuid="a" * 32)
    data_dir.save_identity(identity)
    keys = data_dir.load_keys()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    data_dir.save_identity(identity)
    assert data_dir.load_keys() == keys
    with pytest.raises(DataDirError, match=r"No space.*free disk space"):
        data_dir.save_identity(identity.model_copy(update={"data_port": 20000}))
    with pytest.raises(DataDirError, match=r"No space.*free disk space"):
        DataDir(tmp_path / "new").load_keys()


def test_a_data_directory_whose_files_cannot_be_opened_is_named_with_the_remedy(
    tmp_path: Path,
) -> None:
    for name in ("lock", "identity.json"):
        (tmp_path / name).mkdir()
    with pytest.raises(DataDirError, match=r"cannot be used.*another --data-dir"):
        DataDir(tmp_path).load_identity(fresh_uuid="a" * 32)
    with (
        pytest.raises(DataDirError, match=r"cannot be used.*another --data-dir"),
        DataDir(tmp_path).locked(),
    ):
        pass


def test_a_damaged_identity_is_named_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "identity.json").write_text("{}")
    with pytest.raises(DataDirError, match=r"identity\.json.*delete it"):
        DataDir(tmp_path).load_identity(fresh_uuid="a" * 32)


def test_a_damaged_desired_state_is_forgotten_since_it_comes_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "desired.json").write_text('{"generation": 1, "of_a_later_version": true}')
    assert DataDir(tmp_path).load_wanted(DesiredState, DESIRED_FILE) is None
    assert "desired.json" in caplog.text


@pytest.mark.parametrize("behaviour", ["leaves", "lingers"])
def test_an_agent_that_is_told_to_end_says_so_and_lets_its_stage_leave(
    tmp_path: Path, web: FakeWeb, behaviour: str
) -> None:
    """Which has the grace for it."""

    async def life() -> None:
        web.desired = wants(1, behaviour)
        node = Node(tmp_path, web)
        async with node.running(token=TOKEN, in_a_hurry=False, leave_within_s=0.5):
            await node.until_ready(1)
        assert web.farewells == 1
        assert web.last is not None
        assert web.last.phase is Phase.READY
        left = (tmp_path / "record.left").exists()
        assert left == (behaviour == "leaves")

    run(life())


def test_a_second_word_ends_a_stage_that_is_leaving(tmp_path: Path, web: FakeWeb) -> None:
    async def life() -> None:
        web.desired = wants(1, "lingers")
        node = Node(tmp_path, web)
        async with node.running(token=TOKEN, in_a_hurry=False, leave_within_s=3600.0) as task:
            await node.until_ready(1)
            node.stopped.set()
            await node.until(lambda: web.farewells, what="a farewell")
            assert node.living()
            node.hurry.set()
            await asyncio.wait([task])

    run(life())


def test_an_agent_measures_what_the_answer_to_its_heartbeat_orders(
    tmp_path: Path, web: FakeWeb
) -> None:
    node = Node(tmp_path, web)
    node.profile_command = (sys.executable, fake_profiler.__file__, str(tmp_path / "answers"))
    web.profile = ProfileOrder(
        id=7,
        checkpoint="tiny",
        mean_prompt_tokens=32,
        mean_output_tokens=16,
        max_context_tokens=128,
    )

    async def life() -> None:
        async with node.running(token=TOKEN):
            await node.until(
                lambda: web.profilings and web.profilings[-1].measurement is not None,
                what="the result was told",
            )

    run(life())
    assert {told.id for told in web.profilings} == {7}


def test_an_agent_reads_checkpoints_that_the_site_asks_about(tmp_path: Path, web: FakeWeb) -> None:
    async def life() -> None:
        node = Node(tmp_path, web)
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "config.json").write_text("{}")
        async with node.running(token=TOKEN):
            await node.until(lambda: web.last, what="a heartbeat")
            paths = {7: str(tmp_path / "model"), 8: str(tmp_path / "none"), 9: "relative"}
            looks = tuple(LookOrder(id=number, path=path) for number, path in paths.items())
            web.desired = DesiredState(generation=0, looks=looks)
            await node.until(lambda: web.looked.keys() == paths.keys(), what="all answers")
            assert "holds neither model.safetensors nor" in web.looked[7].error
            assert "does not exist" in web.looked[8].error
            assert "not a whole path" in web.looked[9].error
            stored = DataDir(tmp_path / "data").load_wanted(DesiredState, DESIRED_FILE)
            assert stored is None or stored.looks == ()

    run(life())


def test_looks_that_hang_keep_an_agent_neither_from_its_orders_nor_from_ending(
    tmp_path: Path, web: FakeWeb
) -> None:
    """As on a file system whose server is away."""

    async def life() -> None:
        node = Node(tmp_path, web)
        hanging = tmp_path / "hanging.gguf"
        os.mkfifo(hanging)  # opening it waits for a writer
        looks = tuple(LookOrder(id=n, path=str(hanging)) for n in range(1, MOST_LOOKS + 1))
        async with node.running(token=TOKEN):
            web.desired = DesiredState(generation=0, looks=looks)
            await node.until(lambda: len(waiting_threads()) == MOST_LOOKS, what="all looks hang")
            loop = asyncio.get_running_loop()
            assert await loop.getaddrinfo("localhost", 80)  # names are still resolved
            web.desired = wants(1).model_copy(update={"looks": looks})
            await node.until_ready(1)
            late = LookOrder(id=99, path=str(tmp_path / "none"))
            web.desired = web.desired.model_copy(update={"looks": (late,)})
            hanging.open("w").close()  # the server is back
            await node.until(lambda: 99 in web.looked, what="the next look's answer")

    run(life())


def waiting_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "look"]


def test_a_link_that_changed_is_told_long_before_the_next_heartbeat(tmp_path: Path) -> None:
    async def life(web: FakeWeb) -> None:
        web.desired = wants(1, "measures a link")
        node = Node(tmp_path, web)
        async with node.running(token=TOKEN):
            await node.until_ready(1)
            node.record.with_name("record.measured").touch()
            await node.until(
                lambda: web.last and web.last.stage == fake_stage.STATS_OF_A_LINK,
                what="the link is told",
            )

    with FakeWeb(heartbeat_interval_s=3600.0) as web:
        run(life(web))
