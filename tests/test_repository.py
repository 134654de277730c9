"""What a stranger finds in the repository: whose it is, and that cleaning deletes no data."""

import subprocess
import tomllib
from pathlib import Path

from tests.installed import installed

ROOT = Path(__file__).resolve().parents[1]


def test_the_licence_is_there_and_is_the_one_that_the_package_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"
    assert (
        "Apache License\n                           Version 2.0" in (ROOT / "LICENSE").read_text()
    )
    assert all(project[name] for name in ("authors", "urls", "classifiers", "keywords"))


def test_cleaning_keeps_the_data_of_a_site() -> None:
    def deleted(target: str) -> set[str]:
        command = [installed("make"), "--dry-run", target]
        lines = subprocess.run(
            command, cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout.splitlines()
        return {word for line in lines if "rm" in line.split() for word in line.split()}

    assert ".venv" in deleted("clean")
    assert "var" not in deleted("clean")
    assert "var" in deleted("distclean")
