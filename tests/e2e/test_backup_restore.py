"""Backup, destroy, restore, over both databases in turn: not a value of a row is lost.

The rows are compared by what the databases themselves say, past all code of ours.
"""

import json
import shutil
import sqlite3
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.e2e import blank_database
from tests.e2e.servers import PostgresServer
from tests.programs import helixweb, run_python

PASSPHRASE = "correct horse battery staple"
_ROWS = "SELECT t::text FROM {} t"
SEQUENCES = "SELECT sequencename, last_value FROM pg_sequences"


def told(*words: str, environ: Mapping[str, str]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(helixweb(*words, "--json", environ=environ).stdout)
    return answer


@pytest.fixture(scope="module")
def lived_in(blank_sqlite: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of a site with rows in it, some of which came and went."""
    data = tmp_path_factory.mktemp("site") / "data"
    blank_database.put(blank_sqlite, data)
    world = ("-m", "tests.e2e.in_site", "tests.e2e.site_world", "home", "http://127.0.0.1:9")
    run_python(*world, environ={"HELIX_DATA_DIR": str(data)})
    # Numbers that were given are not given again, so the last of them must be kept as well.
    change(data, "DELETE FROM common_event WHERE id > (SELECT max(id) FROM common_event) - 2")
    (data / "coordinator").mkdir()
    (data / "coordinator" / "identity.json").write_text('{"credential": "hush"}')
    return data


def change(data: Path, statement: str) -> None:
    with sqlite3.connect(data / "helixweb.sqlite3") as database:
        database.execute(statement)
    database.close()


@pytest.fixture
def data(lived_in: Path, tmp_path: Path) -> Path:
    """A copy of that folder."""
    return Path(shutil.copytree(lived_in, tmp_path / "data"))


@pytest.fixture
def here(data: Path) -> dict[str, str]:
    return {"HELIX_DATA_DIR": str(data)}


def content_of_sqlite(path: Path) -> dict[str, list[Any]]:
    """Every row of every table, JSON by its meaning: PostgreSQL orders its keys anew."""
    with sqlite3.connect(path) as database:
        names = [
            name
            for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if name != "django_migrations"  # when each was applied
        ]
        rows = {
            name: list(database.execute(f'SELECT * FROM "{name}"'))  # noqa: S608 - its own names
            for name in names
        }
    database.close()
    # That no number was given yet is told by a zero, or by no row.
    rows["sqlite_sequence"] = [row for row in rows["sqlite_sequence"] if row[1]]
    return {name: sorted(map(_by_meaning, found)) for name, found in rows.items()}


def _by_meaning(row: tuple[Any, ...]) -> str:
    return repr(
        [
            json.dumps(json.loads(value), sort_keys=True)
            if isinstance(value, str) and value.startswith(("{", "["))
            else value
            for value in row
        ]
    )


def content_of_postgres(url: str) -> dict[str, list[Any]]:
    """Every row of every table as PostgreSQL writes it, and the state of the sequences."""
    with psycopg.connect(url) as database:
        names = [
            name
            for (name,) in database.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
            )
            if name != "django_migrations"
        ]
        content = {
            name: sorted(database.execute(sql.SQL(_ROWS).format(sql.Identifier(name))).fetchall())
            for name in names
        }
        own = "django_migrations_id_seq"
        content["sequences"] = sorted(row for row in database.execute(SEQUENCES) if row[0] != own)
    return content


@pytest.mark.e2e
@pytest.mark.postgres
@pytest.mark.long
def test_over_sqlite_postgresql_and_back_nothing_is_lost(
    lived_in: Path, tmp_path: Path, postgres: PostgresServer
) -> None:
    (tmp_path / "passphrase").write_text(PASSPHRASE + "\n")
    seal = ("--passphrase-file", str(tmp_path / "passphrase"))
    first, second = map(postgres.make_database, ("restored_one", "restored_two"))

    saved = told("backup", f"{tmp_path}/a.helix", *seal, environ={"HELIX_DATA_DIR": str(lived_in)})
    assert saved["rows"] > 100
    assert "secret_key" in saved["files"]
    assert saved["encrypted"]

    folders = [tmp_path / name for name in ("one", "two", "three")]
    places = [
        {"HELIX_DATA_DIR": str(folder), "DATABASE_URL": url}
        for folder, url in zip(folders, (first, second, ""), strict=True)
    ]
    for step, place in enumerate(places):
        source = f"{tmp_path}/{'abc'[step]}.helix"
        restored = told("restore", source, *seal, environ=place)
        assert restored["rows"] == saved["rows"]
        if step < 2:
            told("backup", f"{tmp_path}/{'bcd'[step]}.helix", *seal, environ=place)

    assert content_of_postgres(first) == content_of_postgres(second)
    before = content_of_sqlite(lived_in / "helixweb.sqlite3")
    assert sum(map(len, before.values())) > saved["rows"]  # and what SQLite counts by
    assert content_of_sqlite(folders[2] / "helixweb.sqlite3") == before
    for name in ("secret_key", "coordinator/identity.json"):
        assert (folders[2] / name).read_bytes() == (lived_in / name).read_bytes()
    assert (folders[2] / "secret_key").stat().st_mode & 0o777 == 0o600

    helixweb("restore", f"{tmp_path}/a.helix", *seal, environ=places[0], expect=5)
    replaced = helixweb("restore", f"{tmp_path}/a.helix", *seal, "--force", environ=places[0])
    assert "is restored" in replaced.stdout
    assert content_of_postgres(first) == content_of_postgres(second)
    assert len(list((folders[0] / "backups").glob("before-restore-*.helix"))) == 1


def _within_rows(path: Path) -> int:
    """A place in the content of the largest member, which no header is."""
    with zipfile.ZipFile(path) as archive:
        largest = max(archive.infolist(), key=lambda member: member.compress_size)
    header = len(largest.FileHeader())
    return largest.header_offset + header + largest.compress_size // 2


@pytest.mark.e2e
def test_a_site_is_put_back_whole_or_stays_as_it_is(
    lived_in: Path, data: Path, here: dict[str, str], tmp_path: Path
) -> None:
    kept = f"{tmp_path}/kept/"
    for _ in range(2):
        saved = told("backup", kept, environ=here)
    before = content_of_sqlite(data / "helixweb.sqlite3")

    checked = told("restore", kept, "--check", environ=here)
    assert checked["rows"] == saved["rows"]
    refused = helixweb("restore", kept, environ=here, expect=5)
    assert "--force" in refused.stderr

    path = next(iter(sorted((tmp_path / "kept").glob("*.helix"))))
    damaged = bytearray(path.read_bytes())
    damaged[_within_rows(path)] ^= 0xFF
    (tmp_path / "damaged.helix").write_bytes(damaged)
    told_of = helixweb(
        "restore", f"{tmp_path}/damaged.helix", "--force", environ=here, expect=1
    ).stderr
    assert "damaged" in told_of
    assert content_of_sqlite(data / "helixweb.sqlite3") == before

    (data / "helixweb.sqlite3").unlink()
    (data / "secret_key").unlink()
    helixweb("restore", kept, "--force", environ=here)
    assert content_of_sqlite(data / "helixweb.sqlite3") == before
    assert (data / "secret_key").read_bytes() == (lived_in / "secret_key").read_bytes()


@pytest.mark.e2e
def test_a_failed_restore_changes_nothing(data: Path, here: dict[str, str], tmp_path: Path) -> None:
    (data / "uploads").mkdir()
    (data / "uploads" / "kept").touch()
    told("backup", f"{tmp_path}/a.helix", environ=here)
    shutil.rmtree(data / "uploads")
    (data / "uploads").touch()  # in the way of the folder
    (data / "secret_key").write_text("of the site that is there now")
    change(data, "UPDATE auth_user SET first_name = 'Later'")
    now = content_of_sqlite(data / "helixweb.sqlite3")

    helixweb("restore", f"{tmp_path}/a.helix", "--force", environ=here, expect=1)
    assert content_of_sqlite(data / "helixweb.sqlite3") == now
    assert (data / "secret_key").read_text() == "of the site that is there now"


@pytest.mark.e2e
def test_a_site_that_runs_is_not_replaced(data: Path, here: dict[str, str], tmp_path: Path) -> None:
    told("backup", f"{tmp_path}/a.helix", environ=here)
    change(
        data,
        "INSERT INTO operations_pulse (host, process_id, version, at) "
        "VALUES ('here', 1, '1', datetime('now', '+1 hour'))",  # heard however slow the machine
    )
    refused = helixweb("restore", f"{tmp_path}/a.helix", "--force", environ=here, expect=5)
    assert "stop it first" in refused.stderr
    assert "try again in 15 s" in refused.stderr


@pytest.mark.e2e
def test_an_empty_place_gives_no_backup(tmp_path: Path) -> None:
    here = {"HELIX_DATA_DIR": str(tmp_path / "data")}
    refused = helixweb("backup", f"{tmp_path}/a.helix", environ=here, expect=1)
    assert "there is no site" in refused.stderr
    assert not (tmp_path / "a.helix").exists()
