"""The base install runs the site: nothing that only an extra or the developers have is needed.

Everything else is installed where tests run, so it is hidden here from a process of its own.
"""

import contextlib
import json
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[1]
LOADS_WITHOUT = """
import importlib.machinery, json, sys

class AllButHidden:
    def __init__(self, finders, names):
        self.finders, self.names = finders, set(names)
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            return None
        found = (finder.find_spec(name, path, target) for finder in self.finders)
        return next((spec for spec in found if spec is not None), None)
    def find_distributions(self, *context):
        return importlib.machinery.PathFinder.find_distributions(*context)

sys.meta_path[:] = [AllButHidden(list(sys.meta_path), json.loads(sys.argv[1]))]
import django
django.setup()
from django.urls import get_resolver
get_resolver().url_patterns
for name in json.loads(sys.argv[2]):
    importlib.import_module(name)
"""
LOADED = [
    "helixweb.asgi", "helixweb.celery", "helixweb.operations.tasks",
    "helixweb.operations.commands.up", "helixweb.operations.commands.backup",
    "helixweb.operations.commands.restore", "helixweb.operations.commands.doctor",
    "helixweb.operations.commands.wheels", "helixweb.operations.web_server",
    "helixweb.operations.backup.restoring", "helixweb.operations.doctor.examination",
    "helixweb.command_line.main", "planner.__main__", "planner.planning",
    "runtime.__main__", "runtime.coordinator.main", "runtime.agent.main", "runtime.front.main",
]  # fmt: skip


def base_distributions() -> set[str]:
    """What `pip install helixweb` brings, as far as it is installed here."""
    found: set[str] = set()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    waiting: list[tuple[list[str], frozenset[str]]] = [(project["dependencies"], frozenset())]
    while waiting:
        wanted, extras = waiting.pop()
        for line in wanted:
            requirement = Requirement(line)
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in (*extras, "")):
                needed = canonicalize_name(requirement.name)
                if needed not in found:
                    found.add(needed)
                    with contextlib.suppress(metadata.PackageNotFoundError):  # of other systems
                        more = metadata.requires(needed) or []
                        waiting.append((more, frozenset(requirement.extras)))
    return found


def test_the_site_loads_with_what_the_base_install_has(tmp_path: Path) -> None:
    base = base_distributions() | {"helixweb", "pip", "setuptools"}
    assert {"django", "celery", "numpy"} <= base
    assert not {"torch", "tokenizers", "boto3", "gurobipy"} & base
    hidden = [
        module
        for module, owners in metadata.packages_distributions().items()
        if not {canonicalize_name(owner) for owner in owners} & base
    ]
    assert {"torch", "tokenizers"} <= set(hidden)
    done = subprocess.run(
        [sys.executable, "-c", LOADS_WITHOUT, json.dumps(hidden), json.dumps(LOADED)],
        cwd=ROOT,
        env={
            "PATH": "/usr/bin:/bin",
            "DJANGO_SETTINGS_MODULE": "helixweb.settings",
            "HELIX_DATA_DIR": str(tmp_path),
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
