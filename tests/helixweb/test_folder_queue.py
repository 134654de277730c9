"""The queue of a site without Redis: nothing is lost, and foreign messages run nothing."""

import base64
import json
import multiprocessing
import pickle
import resource
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker
from kombu import Connection

TRANSPORT = "helixweb.common.folder_queue:Transport"
MESSAGES, WRITERS = 150, 3
PATIENCE_S = 300


def options_in(folder: Path) -> dict[str, Any]:
    for name in ("messages", "control"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    return {
        "data_folder_in": str(folder / "messages"),
        "data_folder_out": str(folder / "messages"),
        "control_folder": str(folder / "control"),
        "polling_interval": 0.001,
    }


def connect(folder: Path) -> Connection:
    return Connection("filesystem://", transport=TRANSPORT, transport_options=options_in(folder))


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


class Touches:
    """What a pickle can be: a call."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.proof,)


def message(body: bytes, *, kind: str, task: str, **headers: Any) -> str:
    """As kombu writes one for Celery's protocol 2."""
    properties = {
        "correlation_id": str(uuid.uuid4()), "delivery_mode": 2, "priority": 0,
        "delivery_info": {"exchange": "", "routing_key": "celery"}, "body_encoding": "base64",
        "delivery_tag": str(uuid.uuid4()),
    }  # fmt: skip
    return json.dumps(
        {
            "body": base64.b64encode(body).decode(),
            "content-encoding": "binary" if "pickle" in kind or "python" in kind else "utf-8",
            "content-type": kind,
            "headers": {"lang": "py", "task": task, "id": str(uuid.uuid4()), **headers},
            "properties": properties,
        }
    )


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Celery]:
    """With the site's own settings, and a queue and tasks of the test."""
    from helixweb.celery import app as sites

    made = Celery("hostile", set_as_current=False)
    made.config_from_object("django.conf:settings", namespace="CELERY")
    made.conf.broker_url = "filesystem://"
    made.conf.broker_transport = TRANSPORT
    made.conf.broker_transport_options = options_in(tmp_path)
    made.conf.beat_schedule = {}
    yield made
    sites.set_default()  # a worker makes its app the default one
    sites.set_current()


def test_the_site_takes_json_alone() -> None:
    from helixweb.celery import app as sites

    assert sites.conf.accept_content == ["json"]
    assert sites.conf.task_serializer == "json"
    assert sites.conf.result_backend is None


def test_foreign_messages_in_the_queue_run_nothing(app: Celery, tmp_path: Path) -> None:
    proof, ran, seen = tmp_path / "it-ran", [], threading.Event()

    @app.task(name="good")
    def good(number: int) -> None:
        ran.append(number)
        seen.set()

    evil = pickle.dumps([[], {"x": Touches(proof)}, {}])
    plain = json.dumps([[], {}, {}]).encode()
    touch = json.dumps([[str(proof)], {}, {}]).encode()
    hostile = [
        message(evil, kind="application/x-python-serialize", task="good"),
        message(evil, kind="application/json", task="good"),
        message(evil, kind="application/data", task="good"),
        message(touch, kind="application/json", task="pathlib.Path.touch"),
        message(touch, kind="application/json", task="os.mknod"),
        message(plain, kind="application/json", task="../../etc/passwd"),
        message(plain, kind="application/x-yaml", task="good"),
        "{}", "[]", "null", '{"body": 1}', "\x00\xff", "[" * 50_000,
    ]  # fmt: skip
    for number, text in enumerate(hostile):
        (tmp_path / "messages" / f"{number:020d}_x.celery.msg").write_text(text)
    with start_worker(
        app, pool="solo", perform_ping_check=False, loglevel="CRITICAL", shutdown_timeout=PATIENCE_S
    ):
        good.delay(7)
        assert seen.wait(PATIENCE_S), "the worker stands still"
    assert ran == [7]
    assert not list((tmp_path / "messages").iterdir()), "all were looked at"
    assert not proof.exists()
