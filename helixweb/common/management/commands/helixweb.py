"""`python manage.py helixweb COMMAND …`: the command line where its script is not installed."""

import argparse
import sys
from typing import Any

from django.core.management.base import BaseCommand

from helixweb.command_line.main import main


class Command(BaseCommand):
    help = "The command line of the REST API: nodes, plans, deployments, import and export."

    def run_from_argv(self, argv: list[str]) -> None:
        sys.exit(main(argv[2:]))

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("words", nargs=argparse.REMAINDER)

    def handle(self, *args: Any, **options: Any) -> None:
        """Run a command from `call_command`, with the arguments of the command line."""
        status = main(options["words"])
        if status:
            sys.exit(status)
