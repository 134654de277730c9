"""Arguments of commands for options that a dataclass declares."""

import argparse
import math
from collections.abc import Callable
from typing import Any

from planner.domain.option import OptionField


def add_option(
    command: argparse._ActionsContainer, option: OptionField, flag: str = "", **changes: Any
) -> argparse.Action:
    """Take the option as `flag`, into an attribute of its own name; `changes` overrule."""
    spec, kind, default = option.spec, option.kind, option.default
    settings: dict[str, Any] = {"dest": option.name, "default": default}
    words = [f"{word}: {label}" for word, label in spec.choices.items()]
    if kind is bool:
        settings["action"] = argparse.BooleanOptionalAction
    elif words:
        settings["choices"] = tuple(spec.choices)
    elif kind in (int, float):
        settings |= {"type": kind, "metavar": spec.unit.split(" ")[-1].upper() or "N"}
    else:  # several values, each with the flag before it
        settings |= {"action": "append", "default": []}
    text = spec.description + (f" ({'; '.join(words)})" if words else "")
    if isinstance(default, int | float | str):
        text += f" (default: {default})"
    settings["help"] = text.replace("%", "%%")
    flag = flag or f"--{option.name.removesuffix('_s').replace('_', '-')}"
    return command.add_argument(flag, **(settings | changes))


def number_within(option: OptionField) -> Callable[[str], float]:
    """The type of an argument that keeps to the option's bounds."""
    spec = option.spec
    least = -math.inf if spec.least is None else spec.least
    most = math.inf if spec.most is None else spec.most

    def number(text: str) -> float:
        value: float = option.kind(text)
        if least <= value <= most:
            return value
        raise argparse.ArgumentTypeError(f"{text} is not allowed; give {least:g} to {most:g}")

    return number
