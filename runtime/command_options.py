"""Options of a program as fields of a dataclass, each declared once."""

import argparse
from dataclasses import field, fields
from typing import Any


def option(*, flag: str = "", **settings: Any) -> Any:
    """A field that `flag` sets, by default `--` and its name; `settings` as of `add_argument`."""
    return field(metadata={"flag": flag, "settings": settings})


def add_options(parser: argparse.ArgumentParser, kind: type[Any]) -> None:
    """Add those of the dataclass `kind`; fields without `option` are set by other functions."""
    for each in fields(kind):
        if each.metadata:
            flag = each.metadata["flag"] or f"--{each.name.replace('_', '-')}"
            parser.add_argument(flag, dest=each.name, **each.metadata["settings"])
