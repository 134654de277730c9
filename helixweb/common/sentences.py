"""Sentences of events: written when something happens, read later in any language."""

from collections.abc import Mapping
from typing import Any

from helixweb.words import gettext


def sentence(message: str, **values: str | int | float) -> dict[str, Any]:
    """What an event's data have of it: in English as `text`, and what says it in any language.

    `message` is marked by gettext_noop; `values` are its %(name)s. Only `what`, the kind of a row,
    is translated.
    """
    return {"text": message % values, "said": message, "of": values}


def in_words(data: Mapping[str, Any]) -> str:
    """In the reader's language; in English what is of before sentences were kept like that."""
    if "said" not in data:
        return str(data["text"])
    values = data["of"]
    if "what" in values:
        values = {**values, "what": gettext(values["what"])}
    words: str = gettext(data["said"]) % values
    return words
