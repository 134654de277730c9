"""A worker that is killed leaves nothing behind, beat least of all: the next one brings its own."""

from pathlib import Path

import psutil
import pytest

from helixweb.demo.processes import Processes
from helixweb.demo.scenario import WORKER_COMMAND
from tests.e2e import blank_database
from tests.programs import ROOT, run_python
from tests.runtime.ended import has_ended
from tests.waiting import until

ORPHAN = """
import os, time
from helixweb import celery
worker = os.getpid()
celery.remember_the_worker()
if os.fork() == 0:
    while os.getppid() == worker:
        time.sleep(0.01)
    celery.end_with_the_worker()
    time.sleep(600)  # longer than is waited for; where beat is not ended, it ends by itself
"""

pytestmark = pytest.mark.e2e


def test_the_processes_of_a_killed_worker_end(tmp_path: Path, blank_sqlite: Path) -> None:
    env = {"HELIX_DATA_DIR": str(tmp_path / "web"), "DATABASE_URL": "", "REDIS_URL": ""}
    blank_database.put(blank_sqlite, tmp_path / "web")
    with Processes(log_dir=tmp_path / "logs", cwd=ROOT, env=env) as processes:
        command = [*WORKER_COMMAND, "--concurrency", "1"]
        worker = psutil.Process(processes.start("worker", command).process.pid)
        until(lambda: len(worker.children()) >= 2, "beat runs, and one that runs tasks")
        children = worker.children()
        worker.kill()
        until(lambda: all(has_ended(child) for child in children), "all have ended")


def test_beat_ends_that_begins_after_its_worker_was_killed(tmp_path: Path) -> None:
    """Whoever reads what it says waits for the last that may say something."""
    run_python("-c", ORPHAN, environ={"HELIX_DATA_DIR": str(tmp_path)})
