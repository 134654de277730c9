"""`helixweb model`: the language models that can be served."""

import argparse
import importlib
from pathlib import Path

from helixweb.client import Row
from helixweb.command_line import exit_codes
from helixweb.command_line.completion_words import model_names
from helixweb.command_line.output import number, pairs, table
from helixweb.command_line.registry import COMMANDS, Subparsers, completed_by
from helixweb.command_line.reporting import BadUsage
from helixweb.command_line.resolve import model_named
from helixweb.command_line.session import (
    Session,
    connection_options,
    given,
    positive,
    run_action,
    whole_number,
)

_STORE = "helixweb.operations.commands.model_store"
# Option -> column.
_COLUMNS = {
    "name": "name",
    "layers": "num_layers",
    "bytes_per_layer": "bytes_per_layer",
    "activation_bytes": "activation_bytes_per_token",
    "max_context_tokens": "max_context_tokens",
    "heads": "num_heads",
    "kv_heads": "num_kv_heads",
    "head_dim": "head_dim",
    "embedding_bytes": "embedding_bytes",
    "head_bytes": "head_bytes",
    "checkpoint": "checkpoint",
    "engine": "engine",
    "vllm_flags": "vllm_flags",
}


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser = subparsers.add_parser("model", help=COMMANDS["model"][1])
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    common = [connection_options()]
    actions.add_parser("list", help="all models", parents=common).set_defaults(act=_list)
    add = actions.add_parser("add", help="add a model by its checkpoint", parents=common)
    add.add_argument(
        "model",
        help="a folder or GGUF file on the nodes, or a name on the hub; with --layers and the "
        "other numbers just its name",
    )
    add.add_argument("--name", help="what clients ask for (default: as the checkpoint is called)")
    add.add_argument(
        "--store",
        action="store_true",
        help="first copy that folder of this machine into the models folder of the site here, "
        "from which nodes fetch their layers",
    )
    add.set_defaults(act=_add)
    pull = actions.add_parser(
        "pull", help="download a model from the hub for the site on this machine"
    )
    pull.add_argument(
        "model", help="a name on the hub, such as org/model or org/model-GGUF/file.gguf"
    )
    for one in (add, pull):
        one.add_argument(
            "--data", type=Path, metavar="DIR", help="data folder of the site (HELIX_DATA_DIR)"
        )
    pull.add_argument("--json", action="store_true", help="print what was downloaded as JSON")
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
        one.add_argument("--layers", type=whole_number)
        one.add_argument("--bytes-per-layer", type=positive)
        one.add_argument("--activation-bytes", type=positive, help="per token, between layers")
        one.add_argument("--checkpoint", help="where it lies on the nodes")
        one.add_argument("--max-context-tokens", type=whole_number)
        one.add_argument("--heads", type=whole_number)
        one.add_argument("--kv-heads", type=whole_number)
        one.add_argument("--head-dim", type=whole_number)
        one.add_argument("--embedding-bytes", type=positive)
        one.add_argument("--head-bytes", type=positive)
        one.add_argument(
            "--engine", choices=("auto", "vllm", "helix"), help="what computes its layers"
        )
        one.add_argument(
            "--vllm-flags",
            metavar="FLAGS",
            help="for vLLM instances: --vllm-flags='--max-num-seqs 64'",
        )
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Call the site; `pull` and `add --store` work on the site's machine."""
    if arguments.action == "pull":
        return int(importlib.import_module(_STORE).run(arguments))
    if arguments.action == "add" and arguments.store:
        _store(arguments)
    return run_action(arguments)


def _store(arguments: argparse.Namespace) -> None:
    """Copy the checkpoint into the models folder, and add the model with that path."""
    if arguments.checkpoint is not None:
        raise BadUsage("--store says where the checkpoint is; leave --checkpoint out")
    folder = importlib.import_module(_STORE).add(arguments, arguments.name)
    arguments.checkpoint, arguments.name = str(folder), folder.name


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
    body = _changes(arguments)
    if "num_layers" in body or "checkpoint" in body:
        body["name"] = arguments.name or arguments.model
    else:
        body["checkpoint"] = _whole_path(arguments.model)
    _print(site, site.client.models.create(body))
    return exit_codes.OK


def _whole_path(word: str) -> str:
    """An absolute path for a relative one; a name on the hub stays the same."""
    return str(Path(word).expanduser().resolve()) if word.startswith((".", "~")) else word


def _edit(site: Session, arguments: argparse.Namespace) -> int:
    row = model_named(site.client, arguments.model)
    body = _changes(arguments)
    if not body:
        raise BadUsage("say what to change; `helixweb model edit --help` lists it")
    tagged = site.client.models.get_tagged(row["id"])
    _print(site, site.client.models.update(row["id"], body, if_match=tagged.etag))
    return exit_codes.OK


def _changes(arguments: argparse.Namespace) -> Row:
    return given(**{column: getattr(arguments, option) for option, column in _COLUMNS.items()})


def _remove(site: Session, arguments: argparse.Namespace) -> int:
    row = model_named(site.client, arguments.model)
    site.client.models.delete(row["id"])
    site.show({"removed": [row["name"]]}, f"removed {row['name']}")
    return exit_codes.OK


def _print(site: Session, row: Row) -> None:
    told = [
        ("id", row["id"]), ("name", row["name"]), ("layers", row["num_layers"]),
        ("bytes per layer", number(row["bytes_per_layer"], digits=0)),
        ("activation bytes", number(row["activation_bytes_per_token"], digits=0)),
        ("context tokens", row.get("max_context_tokens")),
        ("heads", row.get("num_heads")), ("KV heads", row.get("num_kv_heads")),
        ("head size", row.get("head_dim")), ("architecture", row.get("architecture")),
        ("weights in", row.get("dtype")), ("engine", row.get("engine")),
        ("checkpoint", row.get("checkpoint")), ("vLLM flags", row.get("vllm_flags")),
    ]  # fmt: skip
    site.show(row, pairs(told))
