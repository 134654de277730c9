"""Migrations can be taken back, one and all, and fit into the one transaction of a restore."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db.migrations import Migration
from django.db.migrations.loader import MigrationLoader

from tests.e2e import blank_database
from tests.e2e.conftest import postgres, postgres_url  # noqa: F401 - fixtures
from tests.programs import run_python

THERE_AND_BACK = """
import json
import django; django.setup()
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.apps import apps

def schema():
    introspection = connection.introspection
    with connection.cursor() as cursor:
        return {
            table.name: [
                sorted([c.name, str(c.type_code), c.null_ok]
                       for c in introspection.get_table_description(cursor, table.name)),
                sorted(str([sorted(c["columns"]), c["unique"], c["foreign_key"]])
                       for c in introspection.get_constraints(cursor, table.name).values()),
            ]
            for table in introspection.get_table_list(cursor) if table.type == "t"
        }

ours = [app.label for app in apps.get_app_configs() if app.name.startswith("helixweb.")]
call_command("migrate", verbosity=0, interactive=False)
first = schema()
MigrationExecutor(connection).migrate([(label, None) for label in ours])
left = [name for name in schema() if name.split("_")[0] in ours]
executor = MigrationExecutor(connection)
executor.migrate(executor.loader.graph.leaf_nodes())
print(json.dumps({"left": left, "same": schema() == first, "tables": len(first)}))
"""


def own_migrations() -> Iterator[tuple[str, Migration]]:
    for (app, name), migration in MigrationLoader(None).disk_migrations.items():
        if type(migration).__module__.startswith("helixweb."):
            yield f"{app}.{name}", migration


def test_every_migration_knows_the_way_back() -> None:
    one_way = [
        f"{name}: {operation}"
        for name, migration in own_migrations()
        for operation in migration.operations
        if not operation.reversible
    ]
    assert not one_way


@pytest.mark.django_db
def test_every_migration_is_written() -> None:
    call_command("makemigrations", check=True, dry_run=True)


def test_no_migration_ends_the_transaction_it_is_in() -> None:
    assert not [name for name, migration in own_migrations() if not migration.atomic]


def there_and_back(environ: dict[str, str]) -> None:
    settings = {"DJANGO_SETTINGS_MODULE": "helixweb.settings"}
    told = json.loads(run_python("-c", THERE_AND_BACK, environ=settings | environ).stdout)
    assert told["tables"] > 40
    assert told["left"] == []
    assert told["same"]


@pytest.mark.processes
@pytest.mark.long
def test_forward_back_to_nothing_and_forward_on_sqlite(tmp_path: Path, blank_sqlite: Path) -> None:
    data_dir = tmp_path / "data"
    blank_database.put(blank_sqlite, data_dir)  # forward, as all sites of tests are made
    there_and_back({"HELIX_DATA_DIR": str(data_dir), "DATABASE_URL": ""})


@pytest.mark.processes
@pytest.mark.e2e
@pytest.mark.postgres
@pytest.mark.long
def test_forward_back_to_nothing_and_forward_again_on_postgresql(
    tmp_path: Path,
    postgres_url: str,  # noqa: F811 - the fixture
) -> None:
    import psycopg

    with psycopg.connect(postgres_url, autocommit=True) as server:
        server.execute("CREATE DATABASE there_and_back")
    database = postgres_url.rpartition("/")[0] + "/there_and_back"
    there_and_back({"HELIX_DATA_DIR": str(tmp_path), "DATABASE_URL": database})
