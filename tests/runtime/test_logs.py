"""Log lines as JSON: one object each, with the request's id, and never a secret."""

import io
import json
import logging
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from coordinator_doubles import write_checkpoint
from coordinator_rig import Rig, with_coordinator

from runtime.openai_app import RequestIds
from runtime.protocol.logs import (
    NO_REQUEST,
    REQUEST_ID,
    JsonLines,
    TextLines,
    UnknownFormat,
    request_id_or_new,
    wants_json,
)

SECRETS = (
    "hlx_0123456789ab.abcdefghijklmnop",
    "hlxj_jointoken",
    "hlxn_credential",
    "whsec_abcdef",
    "Authorization: Bearer sk-123456",
    "postgres://helix:hunter2@db/helix",
    "password=hunter2",
)


def logged(formatter: logging.Formatter, message: str, **extra: object) -> str:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    logger = logging.Logger("helix.test")
    logger.addHandler(handler)
    logger.warning(message, extra=extra)
    return stream.getvalue()


def test_a_line_is_one_object_whatever_the_message_holds() -> None:
    text = logged(JsonLines(process="agent"), 'a "b"\n{"level": "error"}\u2028', node="n1", other=1)
    (line,) = text.splitlines()
    told = json.loads(line)
    assert told["message"] == 'a "b"\n{"level": "error"}\u2028'
    assert (told["level"], told["process"], told["logger"]) == ("warning", "agent", "helix.test")
    assert told["node"] == "n1"
    assert "other" not in told
    assert "request_id" not in told


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("formatter", [JsonLines(process="web"), TextLines("%(message)s")])
def test_no_secret_is_written(formatter: logging.Formatter, secret: str) -> None:
    text = logged(formatter, f"refused {secret} at the address")
    for part in ("abcdef", "hunter2", "jointoken", "_credential", "sk-123456"):
        assert part not in text
    assert "at the address" in text


def test_a_traceback_is_told_without_the_secrets_in_it() -> None:
    try:
        raise RuntimeError("no hlxn_credential here")
    except RuntimeError:
        record = logging.LogRecord("x", 40, "f", 1, "it broke", None, sys.exc_info())
    told = json.loads(JsonLines(process="web").format(record))
    assert "RuntimeError" in told["exception"]
    assert "_credential" not in told["exception"]


def test_the_id_of_the_request_stands_in_its_lines() -> None:
    token = REQUEST_ID.set("abc-1")
    try:
        assert json.loads(logged(JsonLines(process="web"), "x"))["request_id"] == "abc-1"
    finally:
        REQUEST_ID.reset(token)
    assert json.loads(logged(JsonLines(process="web"), "x", request_id="d"))["request_id"] == "d"


@pytest.mark.parametrize("brought", ["", "a b", 'x"y', "x" * 65, "ä", "a\nb", None])
def test_an_id_that_could_do_harm_is_replaced(brought: str | None) -> None:
    made = request_id_or_new(brought)
    assert len(made) == 32
    assert made != brought
    assert request_id_or_new("web-1:2.3_4") == "web-1:2.3_4"


@pytest.mark.parametrize(("said", "is_json"), [("json", True), ("JSON", True), ("text", False)])
def test_the_format_is_asked_for_by_name(
    monkeypatch: pytest.MonkeyPatch, said: str, is_json: bool
) -> None:
    monkeypatch.setenv("HELIXWEB_LOG", said)
    assert wants_json() is is_json
    monkeypatch.setenv("HELIXWEB_LOG", "xml")
    with pytest.raises(UnknownFormat, match="'xml'; use json or text"):
        wants_json()


def test_what_a_coordinator_logs_of_a_request_has_the_id_it_came_with(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def visit(h: Rig) -> None:
        with caplog.at_level(logging.DEBUG, "helix.requests"):
            transport = httpx.ASGITransport(RequestIds(h.app))
            async with httpx.AsyncClient(
                transport=transport, base_url="http://x", headers=h.client.headers
            ) as client:
                body = {"model": "tiny", "prompt": "hi", "max_tokens": 2}
                sent = {"X-Request-ID": "from-the-web"}
                await client.post("/v1/completions", json=body, headers=sent)
        (record,) = [each for each in caplog.records if each.name == "helix.requests"]
        told = json.loads(JsonLines(process="coordinator").format(record))
        assert told["request_id"] == "from-the-web"
        assert (told["outcome"], told["output_tokens"], told["generation"]) == ("length", 2, 7)
        assert len(told["request"]) == 16
        assert REQUEST_ID.get() == NO_REQUEST

    with_coordinator(write_checkpoint(tmp_path / "checkpoint"), visit)


@pytest.mark.processes
@pytest.mark.parametrize("process", ["agent", "coordinator"])
def test_a_process_that_is_told_another_format_says_what_there_is(
    tmp_path: Path, process: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELIXWEB_LOG", "yaml")
    command = [sys.executable, "-m", "runtime", process, "--server", "http://127.0.0.1:1"]
    command += ["--data-dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (
        2,
        f"{process}: HELIXWEB_LOG is 'yaml'; use json or text\n",
    )
