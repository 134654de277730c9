"""Backends of whole-model instances: by name, or the URL of a server."""

from urllib.parse import urlsplit

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from planner import BACKENDS

_NOT_OF_A_HOST = frozenset(" ?#")  # paths are appended to the given URL


def is_url(backend: str) -> bool:
    """Whether it names a server."""
    return backend.startswith(("http://", "https://"))


def check_backend(text: str) -> None:
    """Raise ValidationError for a text that is neither a backend nor a URL."""
    if text in BACKENDS:
        return
    try:
        parts = urlsplit(text)
        has_host = is_url(text) and bool(parts.hostname) and parts.port != 0
    except ValueError:
        has_host = False
    is_plain = text.isprintable() and not set(text) & _NOT_OF_A_HOST
    if not has_host or not is_plain or parts.path not in ("", "/"):
        raise ValidationError(
            _("%(text)s is no backend; write helix, vllm, transformers, or http(s)://HOST:PORT")
            % {"text": repr(text)}
        )
