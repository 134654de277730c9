"""The small files of a checkpoint by name, wherever it has them: in a folder or in a GGUF file.

A checkpoint is a folder in Hugging Face layout, a GGUF file, or a folder with one GGUF file. In
the last case a file beside the GGUF goes before what the GGUF says, and the keys of a config.json
before the GGUF's, except quantization_config: how the weights are stored is in the GGUF.
"""

import json
from pathlib import Path
from typing import Any

from runtime.checkpoints.errors import CheckpointError
from runtime.checkpoints.gguf_config import config_of
from runtime.checkpoints.gguf_header import read_header

CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
CHAT_TEMPLATE = "chat_template.jinja"
_OF_GGUF = (CONFIG, TOKENIZER, TOKENIZER_CONFIG)


def gguf_file(checkpoint: Path) -> Path | None:
    """The GGUF file that holds the weights of `checkpoint`, None for safetensors.

    Raises CheckpointError for a folder with several.
    """
    if checkpoint.suffix == ".gguf" and not checkpoint.is_dir():
        return checkpoint
    if next(checkpoint.glob("*.safetensors*"), None) is not None:
        return None
    found = sorted(checkpoint.glob("*.gguf"))
    if len(found) > 1:
        raise CheckpointError(
            f"{checkpoint} holds {len(found)} GGUF files; give the path of one, for example "
            f"{found[0]}"
        )
    return found[0] if found else None


def source_of(checkpoint: Path, name: str) -> Path:
    """The file that says what the file `name` of a checkpoint says: for messages.

    Raises CheckpointError.
    """
    gguf = gguf_file(checkpoint)
    beside = (checkpoint if gguf != checkpoint else checkpoint.parent) / name
    if gguf is None or (gguf != checkpoint and beside.is_file()):
        return checkpoint / name
    return gguf


def read_text(checkpoint: Path, name: str) -> str | None:
    """The text of the file `name`, or what a GGUF file says in its place; None without either.

    Raises CheckpointError for a GGUF file that cannot be read, OSError and UnicodeDecodeError.
    """
    gguf = gguf_file(checkpoint)
    beside = None
    if gguf != checkpoint and (checkpoint / name).is_file():
        beside = (checkpoint / name).read_text(encoding="utf-8")
    if gguf is None or name not in _OF_GGUF or (beside is not None and name != CONFIG):
        return beside
    header = read_header(gguf)
    if name == CONFIG:
        told = config_of(header)
        if beside is not None:
            told |= parse_object(beside, source=str(checkpoint / name))
            told.pop("quantization_config", None)
        return json.dumps(told)
    from runtime.checkpoints.gguf_tokenizer import tokenizer_config_of, tokenizer_of

    return tokenizer_of(header) if name == TOKENIZER else json.dumps(tokenizer_config_of(header))


def read_object(checkpoint: Path, name: str) -> dict[str, Any] | None:
    """The JSON object in the file `name`; see `read_text`. Raises CheckpointError."""
    try:
        text = read_text(checkpoint, name)
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{checkpoint / name} cannot be read: {error}") from error
    return None if text is None else parse_object(text, source=str(checkpoint / name))


def read_model_config(checkpoint: Path) -> tuple[dict[str, Any], Path]:
    """What config.json or a GGUF file says of the model, and the file that says it, for messages.

    Raises CheckpointError without either.
    """
    raw, source = read_object(checkpoint, CONFIG), source_of(checkpoint, CONFIG)
    if raw is None:
        raise CheckpointError(
            f"{source} does not exist; give the folder of a Hugging Face checkpoint, or a GGUF file"
        )
    return raw, source


def parse_object(text: str | bytes, *, source: str) -> dict[str, Any]:
    """The JSON object that the file `source` is. Raises CheckpointError."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{source} is not JSON: {error}; download the checkpoint again"
        ) from error
    if not isinstance(raw, dict):
        raise CheckpointError(
            f"{source} holds a JSON {type(raw).__name__}, not an object; download the checkpoint "
            "again"
        )
    return raw
