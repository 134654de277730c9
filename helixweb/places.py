"""Where a site keeps its data unless it is told."""

import os
from collections.abc import Mapping
from pathlib import Path

_ABOVE = Path(__file__).resolve().parent.parent


def default_data_dir(
    environ: Mapping[str, str] = os.environ, *, above: Path = _ABOVE, home: Path | None = None
) -> Path:
    """`var` in a checkout; where a wheel was installed, the folder for state of this user."""
    if (above / "manage.py").is_file() and (above / "pyproject.toml").is_file():
        return above / "var"
    named = environ.get("XDG_STATE_HOME", "")
    state = Path(named) if os.path.isabs(named) else (home or Path.home()) / ".local" / "state"
    return state / "helixweb"
