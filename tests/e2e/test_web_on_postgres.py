"""What differs between databases: locks, races, streams and their connections, odd characters.

The tests of the web that touch these run a second time, on PostgreSQL.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
USE_CASES = (
    "agent_api", "deploy_plan", "etags", "event_stream", "idempotency", "import",
    "inventory_presence", "login", "plan_runs", "rest_batches",
)  # fmt: skip


@pytest.mark.e2e
@pytest.mark.postgres
def test_the_web_does_on_postgresql_what_it_does_on_sqlite(
    postgres_url: str, tmp_path: Path
) -> None:
    files = [f"tests/helixweb/test_{name}.py" for name in USE_CASES]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": postgres_url, "HELIX_DATA_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:]
