"""Settings that a site on the internet can be run with."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helixweb.looking import contains

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[2]


def manage(*arguments: str, data_dir: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    known = {
        key: value for key, value in os.environ.items()
        if not key.startswith("HELIX_") and key not in ("DATABASE_URL", "REDIS_URL", "SECRET_KEY")
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env=known | {"HELIX_DATA_DIR": str(data_dir)} | variables,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


CHECK_AND_ASK = """
from django.core.management import call_command
from django.test import Client
call_command("check", deploy=True, fail_level="WARNING")
print(Client().get("/healthz", secure=True, headers={"Host": "helix.example"}).headers)
"""


def test_the_deploy_check_has_nothing_to_say_about_an_https_site(tmp_path: Path) -> None:
    done = manage(
        "shell", "--no-imports", "--command", CHECK_AND_ASK,
        data_dir=tmp_path, HELIX_URL="https://helix.example",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    contains(done.stdout, "no issues", "'Cross-Origin-Opener-Policy': 'same-origin'")


def test_a_site_url_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    done = manage("check", data_dir=tmp_path, HELIX_URL="ftp://helix.example")
    assert done.returncode != 0
    contains(done.stderr, "ftp://helix.example", "https://helix.example")
