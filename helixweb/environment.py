"""Reads settings from the environment; every secret NAME may come from a file, NAME_FILE."""

import os
import secrets
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured


def text(name: str, default: str = "") -> str:
    """The variable, or the content of the file that NAME_FILE names, or the default."""
    file_name = os.environ.get(f"{name}_FILE")
    if file_name:
        try:
            return Path(file_name).read_text().strip()
        except OSError as error:
            raise ImproperlyConfigured(
                f"{name}_FILE is {file_name!r}, which cannot be read: {error.strerror}; "
                f"fix the path or set {name}"
            ) from error
    return os.environ.get(name, default)


def flag(name: str, *, default: bool) -> bool:
    """1/true/yes/on or 0/false/no/off."""
    value = text(name, "1" if default else "0").lower()
    if value in ("1", "true", "yes", "on"):
        return True
    if value in ("0", "false", "no", "off", ""):
        return False
    raise ImproperlyConfigured(f"{name} is {value!r}; use 1 or 0")


def url(name: str, default: str = "", *, schemes: tuple[str, ...], example: str) -> str:
    """A URL of one of `schemes`; may be empty."""
    value = text(name, default)
    if value and urlsplit(value).scheme not in schemes:
        raise ImproperlyConfigured(  # not the value: it may hold a password
            f"{name} begins with {value.partition(':')[0][:12]!r}; give a URL like {example}"
        )
    return value


def choice(name: str, default: str, *, choices: tuple[str, ...]) -> str:
    """One of `choices`, in capitals."""
    value = text(name, default).upper()
    if value not in choices:
        raise ImproperlyConfigured(f"{name} is {value!r}; use one of {', '.join(choices)}")
    return value


def folder(name: str, default: Path) -> Path:
    """A directory, made for this user alone if need be."""
    path = Path(text(name, str(default))).expanduser().resolve()
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ImproperlyConfigured(
            f"{name} is {str(path)!r}, which cannot be made: {error.strerror}; choose another"
        ) from error
    return path


def words(name: str, default: str = "") -> list[str]:
    """Comma-separated words."""
    return [word.strip() for word in text(name, default).split(",") if word.strip()]


def number(name: str, default: int, *, least: int, most: int) -> int:
    """A whole number from `least` to `most`."""
    value = text(name, str(default))
    if not (value.isascii() and value.isdigit() and least <= int(value[:12]) <= most):
        raise ImproperlyConfigured(f"{name} is {value!r}; give a number from {least} to {most}")
    return int(value)


def networks(name: str) -> list[IPv4Network | IPv6Network]:
    """Comma-separated networks like 10.1.0.0/16 or fd00::/8."""
    try:
        return [ip_network(word) for word in words(name)]
    except ValueError as error:
        raise ImproperlyConfigured(f"{name}: {error}; give networks like 10.1.0.0/16") from error


def generated_secret(path: Path) -> str:
    """The secret in the file `path` (mode 0600), created on first use; safe when processes race."""
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        pass
    path.parent.mkdir(parents=True, exist_ok=True)
    candidate = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(candidate, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_urlsafe(48))
    try:
        os.link(candidate, path)
    except FileExistsError:
        pass
    finally:
        candidate.unlink()
    return path.read_text().strip()
