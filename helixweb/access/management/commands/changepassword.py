"""`manage.py changepassword`, as in Django, with an entry in the change log."""

from typing import Any

from django.contrib.auth.management.commands import changepassword

from helixweb.access.people import telling_of_users
from helixweb.common.actor import commanding


class Command(changepassword.Command):
    def handle(self, *args: Any, **options: Any) -> str | None:
        with commanding("manage.py changepassword"), telling_of_users():
            said: str | None = super().handle(*args, **options)
            return said
