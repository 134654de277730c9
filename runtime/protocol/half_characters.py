"""Halves of surrogate pairs, which JSON can escape and no text in UTF-8 can have."""

import json
import re

_ESCAPED = re.compile(r"\\u[dD][89a-fA-F]")


def half_character_in(value: object, *, text: str) -> str:
    """The first lone surrogate in `value`, which was read from the JSON `text`; empty: none."""
    if _ESCAPED.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            return str(error.object[error.start])
    return ""
