"""Names that shell completion offers; none if the site cannot be reached."""

import argparse
import os
from collections.abc import Callable
from typing import Any

from helixweb.client import ClientError, Rows
from helixweb.command_line.failures import BadUsage
from helixweb.command_line.session import client_for, settings_of
from helixweb.command_line.surroundings import Surroundings

_WITHIN_S = 2.0
_MOST = 200


def completer_of(collection: str) -> Callable[..., list[str]]:
    """Names of the rows of a collection, for argcomplete."""

    def names(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
        if not hasattr(parsed_args, "surroundings"):
            parsed_args.surroundings = Surroundings(environ=os.environ)
        for name in ("url", "key"):
            setattr(parsed_args, name, getattr(parsed_args, name, None))
        try:
            with client_for(parsed_args, settings_of(parsed_args), timeout_s=_WITHIN_S) as client:
                found = [str(row["name"]) for row in Rows(client, collection).all(limit=_MOST)]
        except (ClientError, BadUsage, OSError):
            return []
        return [name for name in dict.fromkeys(found) if name.startswith(prefix)]

    return names
