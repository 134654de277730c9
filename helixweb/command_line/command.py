"""Declarations of commands: their arguments, and the function that acts.

@command(CLUSTER, argument("--limit", type=whole_number))
def status(site: Session, arguments: Namespace) -> None: ...
"""

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from helixweb.client import ClientError, Rows
from helixweb.command_line import exit_codes
from helixweb.command_line.failures import BadUsage
from helixweb.command_line.session import client_for, connection_options, session, settings_of
from helixweb.command_line.surroundings import Surroundings
from planner.commands.arguments import add_option, number_within
from planner.domain.option import options_of

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
Argument: TypeAlias = Callable[[argparse.ArgumentParser], object]
_COMPLETED_WITHIN_S, _MOST_COMPLETED = 2.0, 200
# Called with the namespace alone, or with a session before it; None is exit code 0.
Act: TypeAlias = Callable[..., int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """`connects`: it has the options of a connection; `opens`: `act` gets an open session."""

    act: Act
    takes: tuple[Argument, ...]
    connects: bool
    opens: bool
    about: dict[str, Any]

    def add_parser(self, subparsers: Subparsers, name: str, summary: str) -> None:
        parents = [connection_options()] if self.connects else []
        parser = subparsers.add_parser(name, help=summary, parents=parents, **self.about)
        for take in self.takes:
            take(parser)
        parser.set_defaults(run=self.run)

    def run(self, arguments: argparse.Namespace) -> int:
        """The exit code."""
        if not self.opens:
            return self.act(arguments) or exit_codes.OK
        with session(arguments) as site:
            return self.act(site, arguments) or exit_codes.OK


def command(
    *takes: Argument, connects: bool = True, opens: bool = True, **about: Any
) -> Callable[[Act], Command]:
    """Make a command of the function below; `about` goes to its parser."""
    return lambda act: Command(
        act=act, takes=takes, connects=connects, opens=connects and opens, about=about
    )


@dataclass(frozen=True, slots=True)
class Verbs:
    """Actions under one name: `node list`, `node show`."""

    description: str | None = None
    actions: dict[str, tuple[str, Command]] = field(default_factory=dict)

    def __call__(
        self, name: str, summary: str, *takes: Argument, **about: Any
    ) -> Callable[[Act], Act]:
        """Make an action of the function below."""

        def add(act: Act) -> Act:
            self.actions[name] = summary, command(*takes, **about)(act)
            return act

        return add

    def add_parser(self, subparsers: Subparsers, name: str, summary: str) -> None:
        parser = subparsers.add_parser(name, help=summary, description=self.description)
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        for action, (told, one) in self.actions.items():
            one.add_parser(actions, action, told)


def argument(*names: str, complete: str = "", **settings: Any) -> Argument:
    """One argument. `complete` is the collection whose names the shell offers."""

    def take(parser: argparse.ArgumentParser) -> None:
        added = parser.add_argument(*names, **settings)
        if complete:
            added.completer = completer_of(complete)  # type: ignore[attr-defined]

    return take


def site_options(declaration: Any, *names: str) -> Argument:
    """Those options of a declaration; what is not given takes the site's default."""

    def take(parser: argparse.ArgumentParser) -> None:
        for name in names:
            option = options_of(declaration)[name]
            is_number = option.kind in (int, float)
            changes: dict[str, Any] = {"type": number_within(option)} if is_number else {}
            add_option(parser, option, default=None, **changes)

    return take


def options_given(arguments: argparse.Namespace, declaration: Any) -> dict[str, Any]:
    """The values of the declaration's options that were given."""
    values = {name: getattr(arguments, name, None) for name in options_of(declaration)}
    return {name: value for name, value in values.items() if value is not None}


def completer_of(collection: str) -> Callable[..., list[str]]:
    """Names of the rows of a collection for argcomplete; none if the site cannot be reached."""

    def names(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
        if not hasattr(parsed_args, "surroundings"):
            parsed_args.surroundings = Surroundings(environ=os.environ)
        for name in ("url", "key"):
            setattr(parsed_args, name, getattr(parsed_args, name, None))
        try:
            settings, within_s = settings_of(parsed_args), _COMPLETED_WITHIN_S
            with client_for(parsed_args, settings, timeout_s=within_s) as client:
                found = [
                    str(row["name"]) for row in Rows(client, collection).all(limit=_MOST_COMPLETED)
                ]
        except (ClientError, BadUsage, OSError):
            return []
        return [name for name in dict.fromkeys(found) if name.startswith(prefix)]

    return names


CLUSTER = argument("--cluster", help="its name or id", complete="clusters")
