"""Takes secrets out of texts before they are logged or leave the machine."""

import re

HIDDEN = "…hidden…"

_OURS = re.compile(r"\b(?:hlx[a-z]?|whsec)_[^\s\"',;)]+")
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[^\s\"',;)]+")
_NAMED = re.compile(
    r"""(?ix) \b ([\w-]* (?:password|passwd|secret|token|api[_-]?key|credential))
    (["']? \s* [=:] \s* ["']?) [^\s"',;)&]+"""
)
_IN_URL = re.compile(r"(?<=://)[^/\s@]+(?=@)")


def without_secrets(text: str) -> str:
    """The same text with tokens, passwords, credentials and log-ins of URLs blotted out."""
    text = _IN_URL.sub(HIDDEN, text)
    text = _BEARER.sub(lambda found: f"{found[1]} {HIDDEN}", text)
    text = _NAMED.sub(lambda found: f"{found[1]}{found[2]}{HIDDEN}", text)
    return _OURS.sub(HIDDEN, text)
