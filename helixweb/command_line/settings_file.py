"""The file of `helixweb login`: the server's URL and an API key, readable by its owner only."""

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from helixweb.command_line.failures import BadUsage
from runtime.protocol.home import home_folder

NAME = "config.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of the command line; empty: not set."""

    url: str = ""
    key: str = ""


def path_of(environ: Mapping[str, str]) -> Path:
    """`HELIXWEB_CONFIG`, or the usual place of this user's settings."""
    if named := environ.get("HELIXWEB_CONFIG"):
        return Path(named)
    base = environ.get("XDG_CONFIG_HOME") or str(home_folder() / ".config")
    return Path(base) / "helixweb" / NAME


def read(path: Path) -> Settings:
    """Read the settings; empty without a file. Raises BadUsage."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Settings()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadUsage(f"{path}: {error}; correct it or run `helixweb login`") from error
    unknown = sorted(set(values) - {"url", "key"})
    wrong = [name for name, value in values.items() if not isinstance(value, str)]
    if unknown or wrong:
        raise BadUsage(
            f"{path}: {', '.join(unknown or wrong)} is not understood; it has url and key as text"
        )
    return Settings(**values)


def write(path: Path, settings: Settings) -> None:
    """Write the file; other users cannot read it at any moment. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f"url = {json.dumps(settings.url)}\nkey = {json.dumps(settings.key)}\n")
    fresh.replace(path)


def is_open_to_others(path: Path) -> bool:
    """Whether others on this machine can read it."""
    return os.name == "posix" and bool(path.stat().st_mode & 0o077)
