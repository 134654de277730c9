"""Programs that tests start: run to their end, or ended with the test."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[1]
NO_SERVICES = MappingProxyType({"DATABASE_URL": "", "REDIS_URL": ""})


def run_python(
    *words: str, environ: Mapping[str, str] = NO_SERVICES, cwd: Path = ROOT, expect: int = 0
) -> "subprocess.CompletedProcess[str]":
    """Without services that `environ` does not name; fails with another exit status."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env={**os.environ, **NO_SERVICES, **environ},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == expect, done.stderr
    return done


def helixweb(
    *words: str, environ: Mapping[str, str] = NO_SERVICES, cwd: Path = ROOT, expect: int = 0
) -> "subprocess.CompletedProcess[str]":
    return run_python(
        "-m", "helixweb.command_line", *words, environ=environ, cwd=cwd, expect=expect
    )


@contextmanager
def started(words: Sequence[str], **options: Any) -> "Iterator[subprocess.Popen[Any]]":
    """A process with the options of Popen. It has ended when the block has, also when that failed,
    where Popen itself would wait for an end that does not come."""
    with subprocess.Popen(words, **options) as process:
        try:
            yield process
        finally:
            process.kill()
