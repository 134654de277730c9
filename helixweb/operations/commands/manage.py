"""`helixweb manage …`: what `manage.py` is in a checkout, for a site that was installed."""

import argparse
import os
import sys

from helixweb.command_line import exit_codes
from helixweb.command_line.registry import Subparsers
from helixweb.operations.commands import site
from helixweb.operations.prepare import Fault


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser = subparsers.add_parser(
        "manage",
        help="work on the site's data as manage.py does",
        description="What `python manage.py` does in a checkout: loginlink NAME, apikey, check "
        "--deploy, simulate_traffic and Django's own; `helixweb manage help` lists all.",
    )
    site.add_data_option(parser)
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND ...")
    return parser


def run(arguments: argparse.Namespace) -> int:
    around = arguments.surroundings
    try:
        with site.opened(arguments.data):
            from django.core.management import ManagementUtility

            ManagementUtility([os.path.basename(sys.argv[0]), *arguments.words]).execute()
    except Fault as fault:
        around.warn(str(fault))
        return exit_codes.FAILED
    except SystemExit as leaving:  # Django's commands end so
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    return exit_codes.OK
