"""Sentences of events: written when something happens, read later in any language."""

from collections.abc import Mapping
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
