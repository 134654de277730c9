"""Ten thousand made-up requests to the REST API of a site on PostgreSQL."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.servers import PostgresServer

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.fuzz
@pytest.mark.postgres
@pytest.mark.parametrize(
    "part",
    [
        "test_ten_thousand_requests_do_not_break_the_rest_api[2]",
        "test_ten_thousand_requests_do_not_break_the_rest_api[3]",
        "test_what_the_document_bounds_is_bounded",
    ],
)
def test_ten_thousand_requests_do_not_break_the_rest_api_on_postgresql(
    postgres: PostgresServer, tmp_path: Path, part: str
) -> None:
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-s", "-m", "fuzz",
            "-p", "no:cacheprovider", "-p", "no:logging",
            f"tests/helixweb/test_rest_fuzz.py::{part}",
        ],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": postgres.url, "HELIX_DATA_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )  # fmt: skip
    print(*(line for line in done.stdout.splitlines() if " requests to " in line), sep="\n")
    assert done.returncode == 0, done.stdout[-8000:]
