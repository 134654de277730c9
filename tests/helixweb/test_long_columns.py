"""What is short stands before what is long, where a database reads rows from their beginning."""

import pytest
from django.db import connection

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
        "a migration made the table anew: let LongColumnsLast follow it"
    )
    with connection.cursor() as cursor:
        constraints = connection.introspection.get_constraints(cursor, table)
    assert any(each["primary_key"] for each in constraints.values())
