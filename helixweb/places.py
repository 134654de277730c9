"""The default data folder of a site, and the addresses at which `up` last ran it."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from runtime.protocol.home import home_folder

_ABOVE = Path(__file__).resolve().parent.parent
_KEPT = ".up.json"  # begins with a dot, so that no backup takes it to another machine


def default_data_dir(
    environ: Mapping[str, str] = os.environ, *, above: Path = _ABOVE, home: Path | None = None
) -> Path:
    """`var` in a checkout; where a wheel was installed, the folder for state of this user."""
    if (above / "manage.py").is_file() and (above / "pyproject.toml").is_file():
        return above / "var"
    named = environ.get("XDG_STATE_HOME", "")
    state = Path(named) if os.path.isabs(named) else (home or home_folder()) / ".local" / "state"
    return state / "helixweb"


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Addresses of a site that `up` runs, for other commands on the same data folder."""

    url: str = "http://127.0.0.1:8000"
    port: int = 8000
    coordinator_port: int = 8100

    @classmethod
    def kept_in(cls, data_dir: Path) -> "Addresses":
        """The addresses that `keep` stored, else the defaults."""
        try:
            stored = json.loads((data_dir / _KEPT).read_text(encoding="utf-8"))
            fits = {name: type(value) for name, value in stored.items()} == cls.__annotations__
        except (OSError, ValueError, AttributeError):
            return cls()
        return cls(**stored) if fits else cls()

    def keep(self, data_dir: Path) -> None:
        """Raises OSError."""
        fresh = data_dir / f"{_KEPT}.new"
        fresh.write_text(json.dumps(asdict(self)), encoding="utf-8")
        fresh.replace(data_dir / _KEPT)
