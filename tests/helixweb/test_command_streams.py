"""`helixweb` on streams as shells give them: closed, narrow, left by their reader, without letters;
each a process of its own, against a server that knows one cluster."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.answering import QuietHandler, answering
from tests.programs import started

pytestmark = pytest.mark.processes

WITHIN_S = 300.0
NAME = "Größe-机器😀"
COMMAND = [sys.executable, "-m", "helixweb.command_line"]


class OneCluster(QuietHandler):
    """Lists of clusters have one row, all others none; one event comes, then none for ever."""

    over = threading.Event()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/api/v1/events/":
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            self.wfile.write(b"id: 1\ndata: {}\n\n")
            self.over.wait(WITHIN_S)
            return
        row = {
            "id": 1, "name": NAME, "coordinator_region": "local", "prompt_tokens": 1,
            "output_tokens": 1, "replanning": "ask",
        }  # fmt: skip
        if path == "/api/v1/clusters/1/":
            self._rows(200, row)
        elif path == "/api/v1/clusters/1/reach/":
            self._rows(200, {"processes": 0, "untried": [], "cut": []})
        elif path.count("/") > 4:
            self._rows(404, {"detail": "There is none."})
        else:
            rows = [row] if path == "/api/v1/clusters/" else []
            self._rows(200, {"count": len(rows), "results": rows})

    def _rows(self, status: int, body: Any) -> None:
        self.answer(status, json.dumps(body).encode())


@pytest.fixture
def environ(tmp_path: Path) -> Iterator[dict[str, str]]:
    OneCluster.over.clear()
    with answering(ThreadingHTTPServer(("127.0.0.1", 0), OneCluster)) as server:
        yield {
            **os.environ,
            "HELIXWEB_URL": f"http://127.0.0.1:{server.server_address[1]}",
            "HELIXWEB_KEY": "hlx_a.b",
            "XDG_CONFIG_HOME": str(tmp_path),
        }
        OneCluster.over.set()


@pytest.mark.parametrize(
    "more",
    [{"PYTHONIOENCODING": "ascii"}, {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}],
    ids=["ascii", "locale C"],
)
def test_a_stream_without_the_letters_gets_them_escaped_and_json_stays_json(
    environ: dict[str, str], more: dict[str, str]
) -> None:
    for words in (["cluster", "list"], ["cluster", "list", "--json"]):
        done = subprocess.run(
            [*COMMAND, *words], env={**environ, **more}, capture_output=True, timeout=WITHIN_S
        )
        assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)[0]["name"] == NAME


def test_a_closed_stdout_takes_all(environ: dict[str, str]) -> None:
    line = " ".join([*COMMAND, "top", "--once", ">&-"])
    done = subprocess.run(
        ["sh", "-c", line], env=environ, stderr=subprocess.PIPE, text=True, timeout=WITHIN_S
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_who_waits_for_news_ends_when_its_reader_has_gone(environ: dict[str, str]) -> None:
    command = [*COMMAND, "events"]
    with started(command, env=environ, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline().startswith(b"1 ")
        process.stdout.close()  # and no event comes any more
        assert process.wait(WITHIN_S) == 0


def test_top_gives_the_terminal_back_when_it_is_terminated(environ: dict[str, str]) -> None:
    shown, status = _on_a_terminal({**environ, "TERM": "xterm"}, number=signal.SIGTERM)
    assert shown.startswith("\x1b[?1049h")
    assert shown.endswith("\x1b[?25h\x1b[?1049l")
    assert status == 0


def test_top_steers_no_terminal_that_cannot_be_steered(environ: dict[str, str]) -> None:
    shown, status = _on_a_terminal({**environ, "TERM": "dumb"}, number=signal.SIGINT)
    assert "\x1b" not in shown
    assert status == 130


def _hears_of_ctrl_c() -> None:
    """As where a person starts it: what a shell runs in the background ignores this signal."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _on_a_terminal(environ: dict[str, str], *, number: signal.Signals) -> tuple[str, int]:
    """What `top` showed until it got that signal, after its first picture, and its exit code."""
    terminal, its_end = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "top"], env=environ, stdout=its_end, preexec_fn=_hears_of_ctrl_c
    )
    os.close(its_end)
    shown, asked, deadline = b"", False, time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                shown += os.read(terminal, 65536)
            except OSError:  # the other end is closed
                break
        if b"NODE" in shown and not asked:
            process.send_signal(number)
            asked = True
    status = process.wait(WITHIN_S)
    os.close(terminal)
    return shown.decode(), status
