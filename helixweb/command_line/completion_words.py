"""Names that shell completion offers; none if the site cannot be reached."""

import argparse
import os
from functools import partial
from typing import Any

from helixweb.client import ClientError, Rows
from helixweb.command_line.session import client_for, settings_of
from helixweb.command_line.settings_file import BadSettings
from helixweb.command_line.surroundings import Surroundings

_WITHIN_S = 2.0
_MOST = 200


def _names(kind: str, prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    if not hasattr(parsed_args, "surroundings"):
        parsed_args.surroundings = Surroundings(environ=os.environ)
    for name in ("url", "key"):
        setattr(parsed_args, name, getattr(parsed_args, name, None))
    try:
        with client_for(parsed_args, settings_of(parsed_args), timeout_s=_WITHIN_S) as client:
            names = [str(row["name"]) for row in Rows(client, kind).all(limit=_MOST)]
    except (ClientError, BadSettings, OSError):
        return []
    return [name for name in dict.fromkeys(names) if name.startswith(prefix)]


cluster_names = partial(_names, "clusters")
node_names = partial(_names, "nodes")
model_names = partial(_names, "models")
