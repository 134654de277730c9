"""`helixweb manage …`: what `manage.py` is in a checkout, for a site that was installed."""

import argparse
import os
import sys
from typing import Any

from helixweb.command_line.command import argument, command
from helixweb.command_line.surroundings import Surroundings
from helixweb.operations import site


@command(
    site.DATA_OPTION,
    argument("words", nargs=argparse.REMAINDER, metavar="COMMAND ..."),
    connects=False,
    description="What `python manage.py` does in a checkout: loginlink NAME, apikey, check "
    "--deploy, simulate_traffic and Django's own; `helixweb manage help` lists all.",
)
def manage(around: Surroundings, **given: Any) -> int | None:
    try:
        with site.opened(given.get("data")):
            from django.core.management import ManagementUtility

            ManagementUtility([os.path.basename(sys.argv[0]), *given["words"]]).execute()
    except SystemExit as leaving:  # Django's commands end so
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    return None
