"""Sentences of events: written when something happens, read later in any language."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from helixweb.words import gettext


def sentence(message: str, **values: str | int | float) -> dict[str, Any]:
    """Event data of a message: in English as `text`, and its parts for other languages.

    `message` is marked by gettext_noop; `values` are its %(name)s. Only `what`, the kind of a row,
    is translated.
    """
    return {"text": message % values, "said": message, "of": values}


def in_words(data: Mapping[str, Any]) -> str:
    """A sentence in the reader's language; in English for events of older releases."""
    if "said" not in data:
        return str(data["text"])
    values = data["of"]
    if "what" in values:
        values = {**values, "what": gettext(values["what"])}
    words: str = gettext(data["said"]) % values
    return words


def translated(text: str, messages: Iterable[str]) -> str:
    """A stored text that one of `messages` made, in the reader's language; others as they are."""
    for message in messages:
        parts = re.split(r"%\((\w+)\)s", message % _Unchanged())
        pattern = "".join(
            f"(?P<{part}>.+)" if number % 2 else re.escape(part)
            for number, part in enumerate(parts)
        )
        if found := re.fullmatch(pattern, text):
            words: str = gettext(message) % found.groupdict()
            return words
    return text


class _Unchanged(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return f"%({name})s"
