"""How a program of ours is started with the Python of vLLM's environment. Loads no torch."""

import os
from pathlib import Path

from runtime.platforms import CUDA_ORDER

_STARTER = Path(__file__).resolve().parent / "from_elsewhere.py"
_DEFAULTS = {
    **CUDA_ORDER,
    "VLLM_CONFIGURE_LOGGING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
}


def words_of(python: str, program: str, *options: str) -> list[str]:
    """The command line. With -P, as the starter's folder is no place to import from."""
    return [python, "-P", str(_STARTER), program, *options]


def environment() -> dict[str, str]:
    """Ours, without what leads another Python to our packages."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTHONPATH")}
    return {**_DEFAULTS, **ours}
