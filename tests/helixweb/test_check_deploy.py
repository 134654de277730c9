"""Settings that a site on the internet can be run with."""

from pathlib import Path

import pytest

from tests.helixweb.looking import contains
from tests.programs import run_python

pytestmark = pytest.mark.processes

CHECK_AND_ASK = """
from django.core.management import call_command
from django.test import Client
call_command("check", deploy=True, fail_level="WARNING")
print(Client().get("/healthz", secure=True, headers={"Host": "helix.example"}).headers)
"""


def test_the_deploy_check_has_nothing_to_say_about_an_https_site(tmp_path: Path) -> None:
    environ = {"HELIX_DATA_DIR": str(tmp_path), "HELIX_URL": "https://helix.example"}
    words = ("manage.py", "shell", "--no-imports", "--command", CHECK_AND_ASK)
    done = run_python(*words, environ=environ)
    contains(done.stdout, "no issues", "'Cross-Origin-Opener-Policy': 'same-origin'")


def test_a_site_url_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    environ = {"HELIX_DATA_DIR": str(tmp_path), "HELIX_URL": "ftp://helix.example"}
    done = run_python("manage.py", "check", environ=environ, expect=1)
    contains(done.stderr, "ftp://helix.example", "https://helix.example")
