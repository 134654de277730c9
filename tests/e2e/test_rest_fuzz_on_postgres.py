"""Ten thousand made-up requests to the REST API of a site on PostgreSQL."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.fuzz
@pytest.mark.postgres
def test_ten_thousand_requests_do_not_break_the_rest_api_on_postgresql(
    postgres_url: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-s", "-m", "fuzz", "-p", "no:cacheprovider",
            "tests/helixweb/test_rest_fuzz.py",
        ],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": postgres_url, "HELIX_DATA_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )  # fmt: skip
    print(done.stdout[-1000:])
    assert done.returncode == 0, done.stdout[-8000:]
