"""The site's own commands on a database that is not ready for them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "command", [["loginlink", "ada"], ["apikey", "ada", "laptop"]], ids=lambda words: words[0]
)
def test_without_tables_a_command_says_to_migrate(command: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", *command],
        cwd=ROOT,
        env={**os.environ, "HELIX_DATA_DIR": str(tmp_path), "DATABASE_URL": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "`python manage.py migrate` first" in done.stderr


def test_an_installed_site_is_managed_by_the_one_command(tmp_path: Path) -> None:
    words = ["manage", "--data", str(tmp_path), "loginlink", "ada"]
    done = subprocess.run(
        [sys.executable, "-m", "helixweb.command_line", *words],
        cwd=tmp_path,
        env={**os.environ, "DATABASE_URL": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1
    assert "migrate` first" in done.stderr
    assert (tmp_path / "secret_key").exists()
