"""Migrations can be taken back, one and all, and fit into the one transaction of a restore; columns
and values are such that both databases keep them well."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations import Migration
from django.db.migrations.loader import MigrationLoader
from django.test import RequestFactory
from rest_framework.test import APIClient

from helixweb.common.rest.lists import TimeFilter
from helixweb.deployment.process_api import read_message
from helixweb.inventory.models import Change, Cluster
from runtime.protocol.node_log import LogBatch
from tests.e2e import blank_database
from tests.e2e.conftest import postgres  # noqa: F401 - the fixture
from tests.e2e.servers import PostgresServer
from tests.helixweb.looking import answered
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
def test_forward_back_and_forward_on_postgresql(
    tmp_path: Path,
    postgres: PostgresServer,  # noqa: F811 - the fixture
) -> None:
    database = postgres.make_database("there_and_back")
    there_and_back({"HELIX_DATA_DIR": str(tmp_path), "DATABASE_URL": database})


LONG = {
    "planning_planrun": ["problem"],
    "planning_incumbent": ["components", "placement"],
    "planning_plan": ["problem", "document"],
    "planning_replan": ["points"],
    "monitoring_metricsample": ["latency_totals", "edge_tokens_total", "nodes"],
    "monitoring_tracedrequest": ["transfers_s", "detail"],
}


@pytest.mark.django_db
@pytest.mark.skipif(connection.vendor != "sqlite", reason="of SQLite's files only")
@pytest.mark.parametrize("table", LONG)
def test_long_columns_are_the_last_of_their_tables(table: str) -> None:
    with connection.cursor() as cursor:
        columns = [
            column.name for column in connection.introspection.get_table_description(cursor, table)
        ]
    assert columns[-len(LONG[table]) :] == LONG[table], (
        "a migration rebuilt the table: let LongColumnsLast follow it"
    )
    with connection.cursor() as cursor:
        constraints = connection.introspection.get_constraints(cursor, table)
    assert any(each["primary_key"] for each in constraints.values())


def test_moments_are_asked_for_in_utc(db: None) -> None:
    far = datetime(1447, 6, 17, 4, 47, tzinfo=timezone(timedelta(hours=22, minutes=14)))
    moments = TimeFilter(field_name="created_at", lookup_expr="gte")
    rows = moments.filter(Cluster.unscoped.all(), far)
    asked = rows.query.where.children[0].rhs
    assert asked == far
    assert asked.utcoffset() == timedelta(0)
    assert asked.tzinfo is UTC


def test_a_refusal_that_repeats_nul_is_in_the_change_log(api: APIClient) -> None:
    answered(api.post("/api/v1/clusters/", {"na\0me": "x"}), 400)
    told = Change.unscoped.get(action="refused").text
    assert "na␀me" in told
    assert "\0" not in told


def test_nul_in_what_a_process_says_is_replaced_and_nothing_else() -> None:
    said = ["a\0\0b", "\0", "\\u0000", "\\\0", "plain"]
    lines = [{"at_s": 1.0, "source": "agent", "level": "info", "text": text} for text in said]
    request: Any = RequestFactory().post(
        "/", json.dumps({"lines": lines}), content_type="application/json"
    )
    read = [line.text for line in read_message(LogBatch, request).lines]
    assert read == ["a��b", "�", "\\u0000", "\\�", "plain"]
