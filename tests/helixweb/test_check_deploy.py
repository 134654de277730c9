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


@pytest.mark.parametrize("url", ["ftp://helix.example", "http://helix.example:99999"])
def test_a_site_url_that_is_none_is_refused_by_name(url: str, tmp_path: Path) -> None:
    environ = {"HELIX_DATA_DIR": str(tmp_path), "HELIX_URL": url}
    done = run_python("manage.py", "check", environ=environ, expect=1)
    contains(done.stderr, url, "https://helix.example")


def test_the_database_lies_in_the_data_folder_whatever_that_is_called(tmp_path: Path) -> None:
    folder = tmp_path / "a#b?c%41 d[é]"
    done = run_python("manage.py", "migrate", environ={"HELIX_DATA_DIR": str(folder)})
    assert (folder / "helixweb.sqlite3").is_file(), done.stdout
    assert list(tmp_path.iterdir()) == [folder]


def test_sites_at_two_ports_of_a_host_have_cookies_of_different_names(tmp_path: Path) -> None:
    shown = "print(settings.SESSION_COOKIE_NAME, settings.CSRF_COOKIE_NAME)"
    command = f"from django.conf import settings; {shown}"
    names = set()
    for url in ("http://127.0.0.1:8000", "http://127.0.0.1:8700", "http://127.0.0.1:8701"):
        environ = {"HELIX_DATA_DIR": str(tmp_path), "HELIX_URL": url}
        words = ("manage.py", "shell", "--no-imports", "--command", command)
        names |= set(run_python(*words, environ=environ).stdout.split())
    assert len(names) == 6
