"""Options of plans and deployments as arguments; what is not given takes the site's default."""

import argparse
from typing import Any

from helixweb.client import Row
from planner.commands.arguments import add_option, number_within
from planner.domain.option import options_of


def add_site_options(parser: argparse.ArgumentParser, declaration: Any, *names: str) -> None:
    """Those of the declaration's options."""
    for name in names:
        option = options_of(declaration)[name]
        changes: dict[str, Any] = {"default": None}
        if option.kind in (int, float):
            changes["type"] = number_within(option)
        add_option(parser, option, **changes)


def options_given(arguments: argparse.Namespace, declaration: Any) -> Row:
    """The values of the declaration's options that were given."""
    values = {name: getattr(arguments, name, None) for name in options_of(declaration)}
    return {name: value for name, value in values.items() if value is not None}
