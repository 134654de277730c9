"""The queue of a site without Redis: many processes at once, nothing lost, nothing half read."""

import multiprocessing
import resource
from pathlib import Path

import pytest
from kombu import Connection

TRANSPORT = "helixweb.common.folder_queue:Transport"
MESSAGES, WRITERS = 150, 3
PATIENCE_S = 300


def connect(folder: Path) -> Connection:
    for name in ("messages", "control"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    options = {
        "data_folder_in": str(folder / "messages"),
        "data_folder_out": str(folder / "messages"),
        "control_folder": str(folder / "control"),
        "polling_interval": 0.001,
    }
    return Connection("filesystem://", transport=TRANSPORT, transport_options=options)


def write(folder: Path, writer: int) -> None:
    with connect(folder) as connection, connection.SimpleQueue("work") as queue:
        for number in range(MESSAGES):
            queue.put({"writer": writer, "number": number, "filler": "x" * 20_000})


def read(folder: Path, results: "multiprocessing.Queue[tuple[int, int]]") -> None:
    with connect(folder) as connection, connection.SimpleQueue("work") as queue:
        while True:
            message = queue.get(timeout=PATIENCE_S)
            message.ack()
            results.put((message.payload["writer"], message.payload["number"]))


@pytest.mark.processes
def test_messages_of_several_writers_reach_several_readers_once_each(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    readers = [context.Process(target=read, args=(tmp_path, results)) for _ in range(2)]
    writers = [context.Process(target=write, args=(tmp_path, n)) for n in range(WRITERS)]
    for process in (*readers, *writers):
        process.start()
    try:
        received = [results.get(timeout=PATIENCE_S) for _ in range(MESSAGES * WRITERS)]
        assert all(reader.is_alive() for reader in readers)
    finally:
        for process in (*readers, *writers):
            process.terminate()
            process.join()
    assert sorted(received) == [(w, n) for w in range(WRITERS) for n in range(MESSAGES)]


def test_messages_come_in_order_and_one_that_cannot_be_read_is_dropped(tmp_path: Path) -> None:
    with connect(tmp_path) as connection, connection.SimpleQueue("work") as queue:
        (tmp_path / "messages" / "0_broken.work.msg").write_text('{"half')
        for number in range(20):
            queue.put(number)
        assert [queue.get(timeout=PATIENCE_S).payload for _ in range(20)] == list(range(20))


def test_a_message_for_which_the_disk_has_no_room_leaves_nothing_behind(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with connect(tmp_path) as connection, connection.SimpleQueue("full") as queue:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))  # of each file
        try:
            with pytest.raises(OSError, match="File too large"):
                queue.put("x" * 1000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list((tmp_path / "messages").iterdir()) == []
