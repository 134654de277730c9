"""`helixweb model`: the language models that can be served."""

import argparse
from typing import Any, cast

from helixweb.client.generated import schemas
from helixweb.command_line import exit_codes
from helixweb.command_line.completion_words import model_names
from helixweb.command_line.output import number, pairs, table
from helixweb.command_line.registry import COMMANDS, Subparsers, completed_by
from helixweb.command_line.reporting import BadUsage
from helixweb.command_line.resolve import model_named
from helixweb.command_line.session import (
    Session,
    connection_options,
    positive,
    run_action,
    whole_number,
)

run = run_action
# Option -> column.
_NUMBERS = {
    "layers": "num_layers",
    "bytes_per_layer": "bytes_per_layer",
    "activation_bytes": "activation_bytes_per_token",
    "max_context_tokens": "max_context_tokens",
    "heads": "num_heads",
    "kv_heads": "num_kv_heads",
    "checkpoint": "checkpoint",
}


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser = subparsers.add_parser("model", help=COMMANDS["model"][1])
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    common = [connection_options()]
    actions.add_parser("list", help="all models", parents=common).set_defaults(act=_list)
    add = actions.add_parser("add", help="tell of a model", parents=common)
    add.add_argument("name")
    add.set_defaults(act=_add)
    edit = actions.add_parser("edit", help="change a model", parents=common)
    edit.add_argument("--name", help="another name")
    for one, act in (
        (actions.add_parser("show", help="one model", parents=common), _show),
        (edit, _edit),
        (actions.add_parser("remove", help="remove it and its profiles", parents=common), _remove),
    ):
        completed_by(one.add_argument("model", help="its name or id"), model_names)
        one.set_defaults(act=act)
    for one in (add, edit):
        needed = one is add
        one.add_argument("--layers", type=whole_number, required=needed)
        one.add_argument("--bytes-per-layer", type=positive, required=needed)
        one.add_argument(
            "--activation-bytes", type=positive, required=needed, help="per token, between layers"
        )
        one.add_argument("--checkpoint", help="where it lies on the nodes")
        one.add_argument("--max-context-tokens", type=whole_number)
        one.add_argument("--heads", type=whole_number)
        one.add_argument("--kv-heads", type=whole_number)
    return parser


def _list(site: Session, arguments: argparse.Namespace) -> int:
    rows = list(site.client.models.all())
    columns = ("ID", "NAME", "LAYERS", "GIB", "CONTEXT", "CHECKPOINT")
    lines = [
        (
            row["id"], row["name"], row["num_layers"],
            number(row["num_layers"] * row["bytes_per_layer"] / 2**30, digits=2),
            row.get("max_context_tokens"), row.get("checkpoint"),
        )
        for row in rows
    ]  # fmt: skip
    site.show(rows, table(columns, lines))
    return exit_codes.OK


def _show(site: Session, arguments: argparse.Namespace) -> int:
    _print(site, model_named(site.client, arguments.model))
    return exit_codes.OK


def _add(site: Session, arguments: argparse.Namespace) -> int:
    body = cast(schemas.LanguageModelRequest, {"name": arguments.name, **_changes(arguments)})
    _print(site, site.client.models.create(body))
    return exit_codes.OK


def _edit(site: Session, arguments: argparse.Namespace) -> int:
    row = model_named(site.client, arguments.model)
    named = {} if arguments.name is None else {"name": arguments.name}
    body = cast(schemas.PatchedLanguageModelRequest, {**named, **_changes(arguments)})
    if not body:
        raise BadUsage("say what to change; `helixweb model edit --help` lists it")
    tagged = site.client.models.get_tagged(row["id"])
    _print(site, site.client.models.update(row["id"], body, if_match=tagged.etag))
    return exit_codes.OK


def _changes(arguments: argparse.Namespace) -> dict[str, Any]:
    given = {column: getattr(arguments, option) for option, column in _NUMBERS.items()}
    return {column: value for column, value in given.items() if value is not None}


def _remove(site: Session, arguments: argparse.Namespace) -> int:
    row = model_named(site.client, arguments.model)
    site.client.models.delete(row["id"])
    site.show({"removed": [row["name"]]}, f"removed {row['name']}")
    return exit_codes.OK


def _print(site: Session, row: schemas.LanguageModel) -> None:
    told = [
        ("id", row["id"]), ("name", row["name"]), ("layers", row["num_layers"]),
        ("bytes per layer", number(row["bytes_per_layer"], digits=0)),
        ("activation bytes", number(row["activation_bytes_per_token"], digits=0)),
        ("context tokens", row.get("max_context_tokens")),
        ("heads", row.get("num_heads")), ("KV heads", row.get("num_kv_heads")),
        ("checkpoint", row.get("checkpoint")),
    ]  # fmt: skip
    site.show(row, pairs(told))
