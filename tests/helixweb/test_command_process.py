"""`helixweb` as a process of its own: streams as shells give them, completion, no database."""

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
from django.contrib.auth import get_user_model

from helixweb.inventory.as_code.importing import import_problem
from planner.serialization import problem_from_dict
from tests.answering import QuietHandler, answering
from tests.helixweb.site_in_process import new_key
from tests.programs import helixweb, run_python, started
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.processes


@pytest.fixture
def of_site(transactional_db: None, live_server: Any, tiny_problem: Any, tmp_path: Path) -> Any:
    user = get_user_model().objects.create_superuser("ada")
    import_problem(problem_from_dict(tiny_problem))
    return {
        "HELIXWEB_URL": live_server.url,
        "HELIXWEB_KEY": new_key(user),
        "XDG_CONFIG_HOME": str(tmp_path),
    }


def test_a_process_lists_nodes_and_a_shell_completes_them(of_site: Any, tmp_path: Path) -> None:
    done = helixweb("node", "list", environ=of_site)
    assert done.stderr == ""
    assert [row.split()[0] for row in done.stdout.splitlines()] == [
        "NAME", "tower", "laptop", "mini",
    ]  # fmt: skip
    offered = tmp_path / "offered"
    for typed in ("helixweb node show t", "helixweb plan compute --without t"):
        shell = {
            **of_site,
            "_ARGCOMPLETE": "1",
            "_ARGCOMPLETE_IFS": "\n",
            "_ARGCOMPLETE_STDOUT_FILENAME": str(offered),
            "COMP_LINE": typed,
            "COMP_POINT": str(len(typed)),
        }
        helixweb(environ=shell)
        assert offered.read_text().split() == ["tower"]


def test_who_reads_only_the_beginning_is_no_error(of_site: Any) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "helixweb.command_line", "export"],
        env={**os.environ, **of_site},
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


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
def test_missing_letters_are_escaped(environ: dict[str, str], more: dict[str, str]) -> None:
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


def test_without_tables_a_command_says_to_migrate(tmp_path: Path) -> None:
    environ = {"HELIX_DATA_DIR": str(tmp_path)}
    done = run_python("manage.py", "apikey", "ada", "laptop", environ=environ, expect=1)
    assert done.stderr.count("\n") == 1
    assert "`python manage.py migrate` first" in done.stderr


def test_an_installed_site_is_managed_by_the_one_command(tmp_path: Path) -> None:
    words = ("manage", "--data", str(tmp_path), "loginlink", "ada")
    done = helixweb(*words, cwd=tmp_path, expect=1)
    assert "migrate` first" in done.stderr
    assert (tmp_path / "secret_key").exists()
