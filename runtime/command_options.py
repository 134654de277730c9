"""Options of a program as fields of a dataclass, each declared once; and those that every process
with an OpenAI endpoint has."""

import argparse
from dataclasses import field, fields
from typing import Any

from runtime.command_numbers import positive_seconds


def option(*, flag: str = "", **settings: Any) -> Any:
    """A field that `flag` sets, by default `--` and its name; `settings` as of `add_argument`."""
    return field(metadata={"flag": flag, "settings": settings})


def add_options(parser: argparse.ArgumentParser, kind: type[Any]) -> None:
    """Add those of the dataclass `kind`; fields without `option` are set by other functions."""
    for each in fields(kind):
        if each.metadata:
            flag = each.metadata["flag"] or f"--{each.name.replace('_', '-')}"
            parser.add_argument(flag, dest=each.name, **each.metadata["settings"])


def add_serving_options(parser: argparse.ArgumentParser, *, late: str, grace_s: float) -> None:
    """`late`: what has failed that makes no progress for the request timeout."""
    parser.add_argument(
        "--request-timeout",
        dest="request_timeout_s",
        type=positive_seconds,
        default=120.0,
        help=f"seconds without progress after which {late} (default %(default)g)",
    )
    parser.add_argument(
        "--shutdown-grace",
        dest="shutdown_grace_s",
        type=positive_seconds,
        default=grace_s,
        metavar="SECONDS",
        help="after SIGTERM: how long requests may take to end, while new ones are refused; "
        "SIGINT, or a second signal, ends them at once (default %(default)g)",
    )
