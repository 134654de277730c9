"""A pytest plugin that runs tests on PostgreSQL instead of SQLite.

    python -m pytest -p tests.on_postgres -n auto tests/helixweb

It starts a private server without durability and migrates a template database once. Each process
of pytest-xdist copies the template into a database of its own. Tests that use no database are left
out. A DATABASE_URL that is set already names the server to use instead; its user must be allowed
to create databases.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.e2e.servers import PostgresServer, postgres_binaries
from tests.installed import is_required

ROOT = Path(__file__).resolve().parents[1]
TEMPLATE = "helixweb_template"
# A kill of the server may lose all of it.
NOT_DURABLE = (
    "synchronous_commit=off",
    "full_page_writes=off",
    "autovacuum=off",
    "max_connections=300",
)
_server = pytest.StashKey[PostgresServer]()


@pytest.hookimpl(wrapper=True)  # before pytest-django loads the settings
def pytest_load_initial_conftests(early_config: pytest.Config) -> Iterator[None]:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        if not os.environ.get("DATABASE_URL"):
            early_config.stash[_server] = server = _started()
            os.environ["DATABASE_URL"] = server.url
        _make_template(os.environ["DATABASE_URL"])
    yield


def pytest_unconfigure(config: pytest.Config) -> None:
    if server := config.stash.get(_server, None):
        server.close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    with_database = [item for item in items if _uses_database(item)]
    config.hook.pytest_deselected(items=[item for item in items if not _uses_database(item)])
    items[:] = with_database


def _uses_database(item: pytest.Item) -> bool:
    fixtures = getattr(item, "fixturenames", ())
    return item.get_closest_marker("django_db") is not None or not {
        "db", "transactional_db"
    }.isdisjoint(fixtures)  # fmt: skip


def _started() -> PostgresServer:
    binaries = postgres_binaries()
    if binaries is None:
        said = "PostgreSQL is not installed; apt-get install postgresql"
        pytest.exit(said, returncode=1 if is_required("postgres") else 0)
    return PostgresServer(binaries, settings=NOT_DURABLE)


def _make_template(url: str) -> None:
    """Replace the template by one with the present migrations."""
    import psycopg  # not installed everywhere

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {TEMPLATE}")
        connection.execute(f"CREATE DATABASE {TEMPLATE}")
    template = urlsplit(url)._replace(path=f"/{TEMPLATE}").geturl()
    command = [sys.executable, "manage.py", "migrate", "--no-input", "--skip-checks", "-v0"]
    with tempfile.TemporaryDirectory() as data:
        env = {**os.environ, "DATABASE_URL": template, "HELIX_DATA_DIR": data}
        subprocess.run(command, cwd=ROOT, env=env, check=True)
    os.environ["HELIX_TEST_TEMPLATE"] = TEMPLATE
