"""What a shell offers where a name is wanted. Whoever cannot be asked offers nothing."""

import argparse
import os
from typing import Any

from helixweb.client import Client, ClientError
from helixweb.command_line.session import ca_of, settings_of
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
    around: Surroundings = arguments.surroundings
    try:
        settings = settings_of(arguments)
        with Client(
            settings.url,
            key=settings.key,
            timeout_s=_WITHIN_S,
            ca=ca_of(arguments),
            transport=around.transport,
        ) as client:
            rows = client.pages(f"/{kind}/", query={"limit": _MOST})
            names = [str(row["name"]) for row in rows]
    except (ClientError, BadSettings, OSError):
        return []
    return [name for name in dict.fromkeys(names) if name.startswith(prefix)]
