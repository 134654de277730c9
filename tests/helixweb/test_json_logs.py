"""The site's log as JSON, and ids that tasks carry to the worker."""

import json
import logging
from typing import Any

import pytest
from django.test import Client

from helixweb.common.task_request_ids import KEY
from helixweb.inventory.tasks import announce_silent_processes
from runtime.protocol.logs import NO_REQUEST, REQUEST_ID, JsonLines
from tests.programs import run_python


@pytest.mark.processes
def test_the_setting_makes_every_line_of_the_site_an_object() -> None:
    script = (
        "import os, logging, django; os.environ['DJANGO_SETTINGS_MODULE']='helixweb.settings';"
        "django.setup(); logging.getLogger('uvicorn.error').warning('started for hlxj_secret')"
    )
    done = run_python("-c", script, environ={"HELIXWEB_LOG": "json"})
    (line,) = done.stderr.splitlines()
    told = json.loads(line)
    assert (told["process"], told["logger"]) == ("web", "uvicorn.error")
    assert "hlxj_secret" not in line


@pytest.mark.processes
def test_lines_of_the_worker_and_of_beat_say_whose_they_are() -> None:
    """The test is the worker whose child says them, so beat does not miss it."""
    script = (
        "import logging, os\n"
        "from celery import signals\n"
        "from helixweb import celery\n"
        "celery.app.loader.import_default_modules()\n"
        "celery._worker_pid = os.getppid()\n"
        "for signal in (signals.celeryd_init, signals.beat_embedded_init):\n"
        "    logging.getLogger('celery').warning('x')\n"
        "    signal.send(sender=None)\n"
        "logging.getLogger('celery').warning('x')\n"
    )
    done = run_python("-c", script, environ={"HELIXWEB_LOG": "json"})
    named = [json.loads(line)["process"] for line in done.stderr.splitlines()]
    assert named == ["web", "worker", "beat"]


def test_a_refusal_is_logged_with_the_id_of_its_request(
    client: Client, db: None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        answer = client.get("/api/v1/nowhere/", headers={"X-Request-ID": "abc-7"})
    assert answer["X-Request-ID"] == "abc-7"
    record = next(each for each in caplog.records if each.name == "django.request")
    token = REQUEST_ID.set("abc-7")
    try:
        assert json.loads(JsonLines(process="web").format(record))["request_id"] == "abc-7"
    finally:
        REQUEST_ID.reset(token)


def test_a_task_runs_under_the_id_of_the_request_behind_it() -> None:
    from celery import signals

    headers: dict[str, Any] = {}
    token = REQUEST_ID.set("abc-8")
    try:
        signals.before_task_publish.send(sender="x", headers=headers)
    finally:
        REQUEST_ID.reset(token)
    assert headers[KEY] == "abc-8"

    class Task:
        request = type("Request", (), {KEY: headers[KEY]})()

    signals.task_prerun.send(sender=announce_silent_processes, task=Task())
    assert REQUEST_ID.get() == "abc-8"
    signals.task_postrun.send(sender=announce_silent_processes, task=Task())
    assert REQUEST_ID.get() == NO_REQUEST
