"""A site of an earlier version, with rows in it, brought up to today's on both databases."""

import gzip
import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from helixweb.operations.backup.archive import ArchiveReader, table_member
from tests.e2e.conftest import postgres  # noqa: F401 - the fixture
from tests.e2e.servers import PostgresServer
from tests.programs import run_python

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[2]
OLD = Path(__file__).with_name("site_of_6390163.sql.gz")
# What migrations since then change in rows that were there: they say so themselves.
CHANGED_SINCE = {
    ("deployment_deployment", "peers"),
    ("deployment_nodeassignment", "peers"),
    ("inventory_cluster", "replanning"),
    ("inventory_link", "origin"),
    ("inventory_regionlink", "origin"),
}
# Django's own lists of models and rights, which grow.
GROWING = {"django_migrations", "django_content_type", "auth_permission", "sqlite_sequence"}


def run(*words: str, environ: Mapping[str, str]) -> str:
    return run_python("-m", *words, environ=environ).stdout


@pytest.fixture
def old_site(tmp_path: Path) -> Path:
    """Its data folder."""
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    with closing(sqlite3.connect(data / "helixweb.sqlite3")) as database:
        database.executescript(gzip.decompress(OLD.read_bytes()).decode())
    return data


def rows_of(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Rows by table, in the order of their keys."""
    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        names = [
            row["name"]
            for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        return {
            name: sorted(
                (dict(row) for row in database.execute(f'SELECT * FROM "{name}"')),  # noqa: S608
                key=lambda row: str(next(iter(row.values()))),
            )
            for name in names
        }


def columns_of(path: Path) -> dict[str, list[Any]]:
    """Of each table, whatever their order, with what each one holds and must hold."""
    with closing(sqlite3.connect(path)) as database:
        return {
            name: sorted(
                database.execute(
                    'SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_info(?)', [name]
                ),
                key=str,
            )
            for name in rows_of(path)
        } | {
            "indexes": sorted(
                database.execute(
                    "SELECT sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
                )
            )
        }


def meaning_of(path: Path) -> dict[str, list[Any]]:
    """Rows by table of a backup, whatever the order of keys of what is JSON in them."""
    with ArchiveReader.open(path) as archive:
        return {
            table.label: [json.loads(line) for line in archive.lines(table_member(table.label))]
            for table in archive.manifest.tables
        }


@pytest.mark.e2e
@pytest.mark.postgres
def test_rows_of_an_earlier_version_come_through_on_both_databases(
    old_site: Path,
    tmp_path: Path,
    blank_sqlite: Path,
    postgres: PostgresServer,  # noqa: F811 - the fixture
) -> None:
    database = old_site / "helixweb.sqlite3"
    before = rows_of(database)
    here = {"HELIX_DATA_DIR": str(old_site)}
    told = json.loads(run("helixweb.operations.prepare", "--migrate", environ=here))
    after = rows_of(database)

    assert told["migrated"] >= 9
    assert columns_of(database) == columns_of(blank_sqlite), "as of a new site"
    for table in before.keys() - GROWING:
        came = after[table]
        if table == "inventory_change":  # migrations log what they change
            known = {row["id"] for row in before[table]}
            came = [row for row in came if row["id"] in known]
        assert len(came) == len(before[table]), table
        for old, new in zip(before[table], came, strict=True):
            kept = {
                column: value
                for column, value in old.items()
                if column in new and (table, column) not in CHANGED_SINCE
            }
            assert {column: new[column] for column in kept} == kept, table

    # On PostgreSQL by way of the backup that was made before: the same rows come out.
    there = {
        "HELIX_DATA_DIR": str(tmp_path / "there"),
        "DATABASE_URL": postgres.make_database("upgraded"),
    }
    run("helixweb.command_line", "restore", told["backup"], environ=there)
    contents = []
    for environ, name in ((here, "sqlite"), (there, "postgres")):
        path = tmp_path / f"{name}.helix"
        run("helixweb.command_line", "backup", str(path), environ=environ)
        contents.append(meaning_of(path))
    by_sqlite, by_postgres = contents
    assert by_sqlite.keys() == by_postgres.keys()
    numbered_by_order = {"contenttypes.contenttype", "auth.permission", "auth.group_permissions"}
    logged = {row["id"] for row in before["inventory_change"]}  # later rows: each has its own time
    for content in (by_sqlite, by_postgres):
        content["inventory.change"] = [
            row for row in content["inventory.change"] if row[0] in logged
        ]
    for label in by_sqlite.keys() - numbered_by_order:
        assert by_sqlite[label] == by_postgres[label], label
