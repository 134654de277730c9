"""Declarations of commands: the parameters of a function are the arguments of its command.

    @plan(NO_WAIT)
    def _extend(site: Session, run: Count, *, time_limit: Seconds = 60.0, **rest: Any) -> int:
        \"""Search on from where a run ended.

        What `--help` says after the usage.

        --time-limit S: so much longer (60)
        \"""

The parameters before `*` are positional, the others options; types are those of `_settings`. A
line such as `-t --time-limit S: …` of the docstring has an argument's help, and the placeholder
of its value. Other declarations may follow in the parentheses; `rest` gets their values.
"""

import argparse
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from inspect import Parameter, getdoc, signature
from types import UnionType
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from helixweb.command_line import exit_codes
from helixweb.command_line.failures import BadUsage
from helixweb.command_line.session import OF_EVERY_COMMAND, Session, connection_options
from helixweb.command_line.surroundings import Surroundings
from planner import options_of
from planner.commands.arguments import add_option, number_within

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
Argument: TypeAlias = Callable[[argparse.ArgumentParser], object]
# Called with a session or surroundings, and the arguments. None is exit code 0.
Act: TypeAlias = Callable[..., int | None]
_COMPLETED_WITHIN_S, _MOST_COMPLETED = 2.0, 200
_HELP = re.compile(
    r"^(?:(-\w) )?(?:--)?([\w-]+)((?: [A-Z_=|\[\]]+)*): (.+(?:\n +.+)*)", re.MULTILINE
)
# Names of parameters that name rows: the collection whose names the shell offers.
_COMPLETED = {"cluster": "clusters", "model": "models"}
_COMPLETED |= dict.fromkeys(("node", "nodes", "without"), "nodes")
_SHARED_HELP = dict.fromkeys(_COMPLETED, "its name or id") | {
    "no_wait": "print what was begun and return",
    "deployment": "else the one in service",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """`connects`: it has the options of a connection, and `act` gets a session; else what is around
    the command."""

    act: Act
    takes: tuple[Argument, ...]
    connects: bool
    about: dict[str, Any]

    def add_parser(self, subparsers: Subparsers, name: str, summary: str) -> None:
        parents = [connection_options()] if self.connects else []
        about = {"description": _description(self.act)} | self.about
        parser = subparsers.add_parser(name, help=summary, parents=parents, **about)
        for take in (*_parameters(self.act), *self.takes):
            take(parser)
        parser.set_defaults(run_command=self.run)

    def run(self, arguments: argparse.Namespace) -> int:
        """The exit code."""
        named = signature(self.act).parameters
        values = {
            name: value
            for name, value in vars(arguments).items()
            if name in named or (name not in OF_EVERY_COMMAND and value is not None)
        }
        if not self.connects:
            return self.act(arguments.surroundings, **values) or exit_codes.OK
        with Session(arguments) as site:
            return self.act(site, **values) or exit_codes.OK


def command(*takes: Argument, connects: bool = True, **about: Any) -> Callable[[Act], Command]:
    """Make a command of the decorated function; its parser gets `about`."""
    return lambda act: Command(act=act, takes=takes, connects=connects, about=about)


@dataclass(frozen=True, slots=True)
class Verbs:
    """Actions under one name: `node list`, `node show`."""

    description: str | None = None
    actions: dict[str, tuple[str, Command]] = field(default_factory=dict)

    def __call__(self, *takes: Argument, summary: str = "", **about: Any) -> Callable[[Act], Act]:
        """Make an action of the function below; its name and docstring are the action's."""

        def add(act: Act) -> Act:
            first = summary or _documentation(act).partition("\n")[0].rstrip(".")
            name = act.__name__.strip("_").replace("_", "-")
            self.actions[name] = first[:1].lower() + first[1:], command(*takes, **about)(act)
            return act

        return add

    def add_parser(self, subparsers: Subparsers, name: str, summary: str) -> None:
        parser = subparsers.add_parser(name, help=summary, description=self.description)
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        for action, (words, one) in self.actions.items():
            one.add_parser(actions, action, words)


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


def completer_of(collection: str) -> Callable[..., list[str]]:
    """Names of the rows of a collection for argcomplete; none if the site cannot be reached."""

    def names(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
        from helixweb.client import ClientError, Rows

        settings: dict[str, Any] = dict.fromkeys(OF_EVERY_COMMAND)
        settings |= {"surroundings": Surroundings(environ=os.environ), **vars(parsed_args)}
        settings["timeout"] = _COMPLETED_WITHIN_S
        try:
            with Session(argparse.Namespace(**settings)) as site:
                rows = Rows(site.client, collection).all(limit=_MOST_COMPLETED)
                found = [str(row["name"]) for row in rows]
        except (ClientError, BadUsage, OSError):
            return []
        return [name for name in dict.fromkeys(found) if name.startswith(prefix)]

    return names


def _documentation(act: Act) -> str:
    return getdoc(act) or ""


def _description(act: Act) -> str | None:
    """The paragraphs of the docstring after its first line, without help of arguments."""
    rest = _HELP.sub("", _documentation(act).partition("\n")[2]).strip()
    return " ".join(rest.split()) or None


def _parameters(act: Act) -> Iterator[Argument]:
    """The arguments that are parameters of the function, after the first."""
    hints = get_type_hints(act, include_extras=True)
    documented = {found[1].replace("-", "_"): found for found in _HELP.findall(_documentation(act))}
    for one in list(signature(act).parameters.values())[1:]:
        if one.kind is not Parameter.VAR_KEYWORD:
            default = ("", "", "", _SHARED_HELP.get(one.name))
            short, _, words, help_ = documented.get(one.name.strip("_"), default)
            settings = _settings(one, hints[one.name]) | {"help": help_}
            if words:
                metavar = tuple(words.split())
                settings["metavar"] = metavar if len(metavar) > 1 else metavar[0]
            names: tuple[str, ...] = (one.name,)
            if one.kind is Parameter.KEYWORD_ONLY:
                flag = f"--{one.name.strip('_').replace('_', '-')}"
                names = (short, flag) if short else (flag,)
                settings |= {"dest": one.name, "required": one.default is Parameter.empty}
            yield argument(*names, complete=_COMPLETED.get(one.name, ""), **settings)


def _settings(parameter: Parameter, hint: Any) -> dict[str, Any]:
    """Arguments of argparse for a parameter: `X | None`, a flag, words to choose from, several
    values (of an option each with its flag; each may be a tuple), or what one value is read by."""
    has_default = parameter.default is not Parameter.empty
    settings: dict[str, Any] = {"default": parameter.default} if has_default else {}
    is_option = parameter.kind is Parameter.KEYWORD_ONLY
    if get_origin(hint) in (Union, UnionType):
        hint = next(one for one in get_args(hint) if one is not type(None))
    if hint is bool:
        return {"action": "store_true"}
    if get_origin(hint) is Sequence:
        (hint,) = get_args(hint)
        settings |= {"default": None if parameter.default is None else []}
        if is_option:
            settings["action"] = "append"
        else:
            settings |= {"nargs": "*" if has_default else "+"}
            settings["metavar"] = parameter.name.removesuffix("s")
    elif has_default and not is_option:
        settings["nargs"] = "?"
    if get_origin(hint) is tuple:
        settings["nargs"] = len(get_args(hint))
    elif get_origin(hint) is Literal:
        settings["choices"] = get_args(hint)
    else:
        settings["type"] = get_args(hint)[1] if get_origin(hint) is Annotated else hint
    return settings
