"""What the programs here begin with: can links be shaped, and what is to be run."""

import argparse
import sys
import tomllib
from pathlib import Path
from typing import Any

from tests.shaped_links.network import missing_for_shaping

PARAMETERS = Path(__file__).with_name("parameters.toml")
_SIZES = ("prefill_bytes", "decode_bytes", "decode_every_s")


def start(
    parser: argparse.ArgumentParser, argv: list[str]
) -> tuple[argparse.Namespace, dict[str, Any]]:
    """Arguments and the whole parameters' file. Ends with status 1 where links cannot be shaped."""
    parser.add_argument("--parameters", type=Path, default=PARAMETERS, metavar="FILE.toml")
    arguments = parser.parse_args(argv)
    missing = missing_for_shaping()
    if missing:
        print(missing, file=sys.stderr)
        sys.exit(1)
    return arguments, tomllib.loads(arguments.parameters.read_text())


def with_sizes(parameters: dict[str, Any], section: str) -> dict[str, Any]:
    """A section, and how large and how often prompts and decodes are everywhere."""
    return parameters[section] | {name: parameters[name] for name in _SIZES}
