"""`manage.py loginlink NAME`: print a one-time login link, making the user if need be."""

from argparse import ArgumentParser
from typing import Any

from django.conf import settings

from helixweb.access import people
from helixweb.common.actor import commanding
from helixweb.common.management.site_command import SiteCommand


class Command(SiteCommand):
    help = "Print a one-time login link; creates the user (an administrator) if there is none."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username")

    def handle(self, *args: Any, **options: Any) -> None:
        with commanding("manage.py loginlink"):
            path = people.login_path(people.administrator(options["username"]))
        self.stdout.write(f"{settings.HELIX_URL}{path}")
