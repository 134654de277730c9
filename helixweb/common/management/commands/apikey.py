"""`manage.py apikey USER NAME --scopes read,write`: create an API key and print it once."""

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import CommandError

from helixweb.common import api_keys, auth
from helixweb.common.management.site_command import SiteCommand


class Command(SiteCommand):
    help = "Create an API key for an existing user and print it; it is not shown again."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username")
        parser.add_argument("name")
        parser.add_argument("--scopes", default=auth.READ, help="comma-separated; default: read")

    def handle(self, *args: Any, **options: Any) -> None:
        user = get_user_model().objects.filter(username=options["username"]).first()
        if user is None:
            raise CommandError(
                f"There is no user {options['username']!r}; `manage.py loginlink` creates one."
            )
        scopes = [scope.strip() for scope in options["scopes"].split(",") if scope.strip()]
        try:
            new = api_keys.create_api_key(name=options["name"], user=user, scopes=scopes)
        except ValueError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(new.secret)
