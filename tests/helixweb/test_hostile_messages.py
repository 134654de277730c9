"""Messages that somebody else puts into the broker: a worker runs none of them and goes on."""

import base64
import json
import pickle
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker

TRANSPORT = "helixweb.common.folder_queue:Transport"
PATIENCE_S = 300


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
def app(tmp_path: Path) -> Celery:
    """With the site's own settings, and a queue and tasks of the test."""
    made = Celery("hostile", set_as_current=False)
    made.config_from_object("django.conf:settings", namespace="CELERY")
    for name in ("messages", "control"):
        (tmp_path / name).mkdir()
    made.conf.broker_url = "filesystem://"
    made.conf.broker_transport = TRANSPORT
    made.conf.broker_transport_options = {
        "data_folder_in": str(tmp_path / "messages"),
        "data_folder_out": str(tmp_path / "messages"),
        "control_folder": str(tmp_path / "control"),
        "polling_interval": 0.01,
    }
    made.conf.beat_schedule = {}
    return made


def test_the_site_takes_json_alone() -> None:
    from helixweb.celery import app as sites

    assert sites.conf.accept_content == ["json"]
    assert sites.conf.task_serializer == "json"
    assert sites.conf.result_backend is None


def test_pickles_strange_tasks_and_noise_in_the_queue_run_nothing(
    app: Celery, tmp_path: Path
) -> None:
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
