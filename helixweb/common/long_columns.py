"""Migration operation: moves long columns to the end of a table, for SQLite.

SQLite stores a row in a chain of pages and reads it from the beginning up to the last column that
a query needs. To read a column behind a plan of two megabytes it reads six hundred pages, even if
the query defers the plan. PostgreSQL stores long values separately.
"""

from typing import Any

from django.db.migrations.operations.base import Operation

_AFTER_ALL = 2**32


class LongColumnsLast(Operation):
    """Rebuild a table with these of its columns at the end; a migration's operation.

    A later rebuild of the table has the columns in the order of the migrations again, and
    must be followed by this (`tests/helixweb/test_migrations.py`).
    """

    reduces_to_sql = True
    reversible = True

    def __init__(self, model_name: str, fields: tuple[str, ...]) -> None:
        self.model_name = model_name
        self.fields = fields

    def state_forwards(self, app_label: str, state: Any) -> None:
        """The order of columns is none of a model's."""

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        if schema_editor.connection.vendor != "sqlite":
            return
        model = to_state.apps.get_model(app_label, self.model_name)
        # Django has the columns of a new table in the order in which their fields were made, and
        # makes some of them while it makes the table.
        for place, name in enumerate(self.fields):
            model._meta.get_field(name).creation_counter = _AFTER_ALL + place
        schema_editor._remake_table(model)

    def database_backwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        """Any order will do."""

    def describe(self) -> str:
        return f"Store {', '.join(self.fields)} at the end of each {self.model_name}"
