"""What an agent tells of its log: bounded, in order, without secrets, and none lost on the way."""

import asyncio
import logging
from pathlib import Path

import pytest
from fake_web import FakeWeb, wait_until

from runtime.agent.node_log import NodeLog, NodeLogHandler, tell_log
from runtime.process_log import ProcessLog
from runtime.protocol.log_levels import LogLevel, LogSource
from runtime.protocol.node_log import MAX_LINE_CHARS, MAX_LINES, LogLine
from runtime.protocol.secrets_out import HIDDEN, without_secrets
from runtime.web_client import WebClient


def all_lines(log: NodeLog) -> list[LogLine]:
    lines: list[LogLine] = []
    while batch := log.next_batch():
        lines += batch.lines
        log.told()
    return lines


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("joined with hlxj_abc123DEF-_x today", "hlxj_abc123DEF-_x"),
        ("Authorization: Bearer abc.def/ghi=", "abc.def/ghi="),
        ("password=hunter2&next=1", "hunter2"),
        ('{"api_key": "sk-123", "model": "m"}', "sk-123"),
        ("HF_TOKEN=hf_secretsecret", "hf_secretsecret"),
        ("cannot reach https://ada:lovelace@example.org/x", "lovelace"),
    ],
)
def test_secrets_stay_on_the_machine(text: str, secret: str) -> None:
    shown = without_secrets(text)
    assert secret not in shown
    assert HIDDEN in shown


@pytest.mark.parametrize(
    "text",
    [
        "4096 tokens per step, token 7 sampled",
        "layers [0, 8) of tiny",
        "see http://127.0.0.1:8000/",
    ],
)
def test_what_is_no_secret_is_told_as_it_is(text: str) -> None:
    assert without_secrets(text) == text


def test_a_stage_line_brings_its_level_and_a_traceback_is_an_error_to_its_end(
    tmp_path: Path,
) -> None:
    log = NodeLog(clock=lambda: 7.0)
    stage = ProcessLog(tmp_path / "stage.log", on_line=log.add_stage_line)
    for line in (
        b"2026-11-21 18:00:00,123 WARNING runtime.engine slow\n",
        b"  more of it\n",
        b"2026-11-21 18:00:01,123 INFO runtime.engine fine\n",
        b"\n",
        b"Traceback (most recent call last):\n",
        b"ValueError: no\n",
    ):
        stage.append(line)
    assert [(line.level, line.text) for line in all_lines(log)] == [
        (LogLevel.WARNING, "runtime.engine slow"),
        (LogLevel.WARNING, "  more of it"),
        (LogLevel.INFO, "runtime.engine fine"),
        (LogLevel.ERROR, "Traceback (most recent call last):"),
        (LogLevel.ERROR, "ValueError: no"),
    ]


def test_what_comes_too_fast_is_left_out_oldest_first_and_counted() -> None:
    log = NodeLog(clock=lambda: 7.0, kept_lines=150)
    for number in range(1000):
        log.add(LogSource.STAGE, LogLevel.INFO, f"line {number}")
    first = log.next_batch()
    assert first is not None
    assert len(first.lines) == MAX_LINES
    assert first.lines[0].text.startswith("850 lines were left out")
    assert first.lines[1].text == "line 850"
    assert log.next_batch() is first, "until it was told"
    log.told()
    assert [line.text for line in all_lines(log)][-1] == "line 999"


def test_a_long_line_is_cut() -> None:
    log = NodeLog(clock=lambda: 7.0)
    log.add(LogSource.STAGE, LogLevel.INFO, "x" * 5000)
    (line,) = all_lines(log)
    assert len(line.text) == MAX_LINE_CHARS


def test_the_agents_own_log_is_told_with_its_tracebacks() -> None:
    log = NodeLog(clock=lambda: 7.0)
    logger = logging.Logger("runtime.agent")
    logger.addHandler(NodeLogHandler(log))
    try:
        raise ValueError("token=abc")
    except ValueError:
        logger.exception("it broke")
    lines = all_lines(log)
    assert lines[0].text == "runtime.agent it broke"
    assert lines[-1].text == f"ValueError: token={HIDDEN}"
    assert {(line.source, line.level) for line in lines} == {(LogSource.AGENT, LogLevel.ERROR)}


def test_lines_wait_while_helixweb_is_away_and_arrive_in_order() -> None:
    log = NodeLog()
    for number in range(250):
        log.add(LogSource.AGENT, LogLevel.INFO, f"line {number}")

    async def tell(web: FakeWeb) -> None:
        async with WebClient(web.url, credential="hlxn_1") as client:
            outbox = asyncio.create_task(tell_log(client, log, every_s=0.01))
            await asyncio.to_thread(wait_until, lambda: len(web.log) >= 250, what="all told")
            outbox.cancel()

    with FakeWeb() as web:
        web.credentials["hlxn_1"] = "a" * 32
        web.troubled_answers = 2
        asyncio.run(tell(web))
    assert [line.text for line in web.log] == [f"line {number}" for number in range(250)]
