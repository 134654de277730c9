"""The site's own commands on a database that is not ready for them."""

from pathlib import Path

import pytest

from tests.programs import helixweb, run_python

pytestmark = pytest.mark.processes


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
