"""Names that shell completion offers; none if the site cannot be reached."""

import argparse
import os
from typing import Any

from helixweb.client import ClientError, Rows
from helixweb.command_line.session import client_for, settings_of
from helixweb.command_line.settings_file import BadSettings
from helixweb.command_line.surroundings import Surroundings

_WITHIN_S = 2.0
_MOST = 200


def cluster_names(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    return _names("clusters", prefix, parsed_args)


def node_names(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    return _names("nodes", prefix, parsed_args)


def model_names(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    return _names("models", prefix, parsed_args)


def _names(kind: str, prefix: str, arguments: argparse.Namespace) -> list[str]:
    if not hasattr(arguments, "surroundings"):
        arguments.surroundings = Surroundings(environ=os.environ)
    arguments.url, arguments.key = getattr(arguments, "url", None), getattr(arguments, "key", None)
    try:
        with client_for(arguments, settings_of(arguments), timeout_s=_WITHIN_S) as client:
            names = [str(row["name"]) for row in Rows(client, kind).all(limit=_MOST)]
    except (ClientError, BadSettings, OSError):
        return []
    return [name for name in dict.fromkeys(names) if name.startswith(prefix)]
