"""Base of the site's own commands."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError

from helixweb.common.migrated import has_pending_migrations


class SiteCommand(BaseCommand):
    """A command that reads and writes rows: says so plainly when there are no tables for them.

    Django's checks import every page and the REST API, which commands do not need. `migrate` and
    `helixweb doctor` run them.
    """

    requires_system_checks = []

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            pending = has_pending_migrations()
        except OperationalError as error:
            raise CommandError(
                f"The database does not answer: {str(error).strip()}; check DATABASE_URL."
            ) from error
        if pending:
            raise CommandError(
                "The database lacks tables of this version; run `helixweb up` or "
                "`python manage.py migrate` first."
            )
        return super().execute(*args, **options)
