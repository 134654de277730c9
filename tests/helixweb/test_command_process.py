"""`helixweb` as a process of its own, against a site over a real socket; also as shells call it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from helixweb.inventory.as_code.importing import import_problem
from planner.serialization import problem_from_dict
from tests.helixweb.site_in_process import new_key
from tests.programs import helixweb
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.processes


@pytest.fixture
def environ(transactional_db: None, live_server: Any, tiny_problem: Any, tmp_path: Path) -> Any:
    user = get_user_model().objects.create_superuser("ada")
    import_problem(problem_from_dict(tiny_problem))
    return {
        "HELIXWEB_URL": live_server.url,
        "HELIXWEB_KEY": new_key(user),
        "XDG_CONFIG_HOME": str(tmp_path),
    }


def test_a_process_lists_nodes_and_a_shell_completes_them(environ: Any, tmp_path: Path) -> None:
    done = helixweb("node", "list", environ=environ)
    assert done.stderr == ""
    assert [row.split()[0] for row in done.stdout.splitlines()] == [
        "NAME", "tower", "laptop", "mini",
    ]  # fmt: skip
    offered = tmp_path / "offered"
    for typed in ("helixweb node show t", "helixweb plan compute --without t"):
        shell = {
            **environ,
            "_ARGCOMPLETE": "1",
            "_ARGCOMPLETE_IFS": "\n",
            "_ARGCOMPLETE_STDOUT_FILENAME": str(offered),
            "COMP_LINE": typed,
            "COMP_POINT": str(len(typed)),
        }
        helixweb(environ=shell)
        assert offered.read_text().split() == ["tower"]


def test_who_reads_only_the_beginning_is_no_error(environ: Any) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "helixweb.command_line", "export"],
        env={**os.environ, **environ},
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")
