"""Whether the database has the tables that this version of the site needs."""

from django.db import connection
from django.db.migrations.executor import MigrationExecutor


def has_pending_migrations() -> bool:
    """True if migrations were not applied. Raises OperationalError without a database."""
    executor = MigrationExecutor(connection)
    return bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))
