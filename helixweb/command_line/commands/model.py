"""`helixweb model`: the language models that can be served."""

import importlib
from pathlib import Path
from typing import Any

from helixweb.command_line.command import Verbs, argument
from helixweb.command_line.failures import BadUsage
from helixweb.command_line.numbers import positive, whole_number
from helixweb.command_line.output import columns, number
from helixweb.command_line.resolve import model_named
from helixweb.command_line.resource import Resource, add_verbs, column
from helixweb.command_line.session import Session
from helixweb.command_line.surroundings import Surroundings

_DATA = argument(
    "--data", type=Path, metavar="DIR", help="data folder of the site (HELIX_DATA_DIR)"
)
model = Verbs()
MODELS = Resource(
    noun="model",
    collection="models",
    find=lambda site, word, _: model_named(site, word),
    cells={
        **columns("id name num_layers"),
        "GIB": lambda row: number(row["num_layers"] * row["bytes_per_layer"] / 2**30, digits=2),
        **columns("max_context_tokens checkpoint"),
    },
    fields=dict(
        (
            column("num_layers", whole_number, "--layers"),
            column("bytes_per_layer", positive),
            column(
                "activation_bytes_per_token", positive, "--activation-bytes",
                "per token, between layers",
            ),
            column("checkpoint", help="where it lies on the nodes"),
            column("max_context_tokens", whole_number),
            column("num_heads", whole_number, "--heads"),
            column("num_kv_heads", whole_number, "--kv-heads"),
            column("head_dim", whole_number),
            column("embedding_bytes", positive),
            column("head_bytes", positive),
            column("engine", choices=("auto", "vllm", "helix"), help="what computes its layers"),
            column(
                "vllm_flags", metavar="FLAGS",
                help="for vLLM instances: --vllm-flags='--max-num-seqs 64'",
            ),
        )
    ),
)  # fmt: skip
add_verbs(model, MODELS, "add")


@model(_DATA, *MODELS.fields.values())
def _add(
    site: Session, source: str, *, name: str | None = None, store: bool = False, **values: Any
) -> None:
    """Add a model by its checkpoint.

    source MODEL: a folder or GGUF file on the nodes, or a name on the hub; with --layers and the
        other numbers just its name
    --name: what clients ask for (default: as the checkpoint is called)
    --store: first copy that folder of this machine into the models folder of the site here, from
        which nodes fetch their layers
    """
    if store:
        if "checkpoint" in values:
            raise BadUsage("--store says where the checkpoint is; leave --checkpoint out")
        folder = _store().add(site.arguments, name)
        values["checkpoint"], name = str(folder), folder.name
    body = MODELS.changes(values)
    if "num_layers" in body or "checkpoint" in body:
        body["name"] = name or source
    else:
        body["checkpoint"] = _whole_path(source)
        if name is not None:
            body["name"] = name
    MODELS.show(site, MODELS.rows(site).create(body))


@model(_DATA, connects=False)
def _pull(around: Surroundings, model: str, *, json: bool = False, **rest: Any) -> None:
    """Download a model from the hub for the site on this machine.

    model: a name on the hub, such as org/model or org/model-GGUF/file.gguf
    --json: print what was downloaded as JSON
    """
    _store().pull(around, model, json=json, **rest)


def _store() -> Any:
    """The models folder of the site here, which needs Django."""
    return importlib.import_module("helixweb.operations.model_store")


def _whole_path(word: str) -> str:
    """An absolute path for a relative one; a name on the hub stays the same."""
    return str(Path(word).expanduser().resolve()) if word.startswith((".", "~")) else word
