"""The loops are C: a build without a compiler brings one, and stale loops are not called."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from planner import native

ROOT = Path(native.__file__).parent.parent
REQUIRED = "from setuptools import build_meta; print(build_meta.get_requires_for_build_editable())"


def required_to_build(folder, *, compiler):
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    done = subprocess.run(
        [sys.executable, "-c", REQUIRED],
        cwd=folder,
        env=os.environ | {"CC": compiler},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()[-1]


def test_a_build_without_a_compiler_requires_one_from_pypi(tmp_path):
    assert "ziglang" in required_to_build(tmp_path, compiler=str(tmp_path / "none"))
    assert "ziglang" not in required_to_build(tmp_path, compiler=sys.executable)


def test_loops_of_other_sources_are_refused_with_what_to_do(monkeypatch):
    monkeypatch.setattr(native, "_EDITION", -1)
    with pytest.raises(ImportError, match=r"of other sources; .* setup\.py build_ext"):
        native._library.__wrapped__()
