"""Reads JSON bodies of the REST API, within reason."""

import json
from typing import IO, Any

from django.conf import settings
from rest_framework import parsers
from rest_framework.exceptions import ParseError
from rest_framework.utils.json import strict_constant

from helixweb.common.problems import TooLarge
from runtime.protocol.half_characters import half_character_in

_drf: Any = parsers  # whose types lack what it has
# Most values in one body: reporting the error of each costs far more time than its bytes.
MOST_VALUES = 100_000


def bounded(stream: IO[Any]) -> bytes:
    """The whole body. Raises TooLarge."""
    most = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    content: bytes = stream.read(most + 1)
    if len(content) > most:
        raise TooLarge
    return content


class JsonParser(parsers.JSONParser):
    """DRF's, with limits on size and on the number of values, and a refusal of what is nested too
    deeply or has a key twice."""

    most_values: int | None = MOST_VALUES

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Any = None
    ) -> dict[str, Any]:
        content = bounded(stream)
        values = content.count(b",")  # and those in texts
        if self.most_values is not None and values > self.most_values:
            raise TooLarge(
                f"The body has {values:,} values; send at most {self.most_values:,} at once."
            )
        try:
            text = content.decode(_drf.get_encoding(parser_context or {}))
            parsed: dict[str, Any] = json.loads(
                text, parse_constant=strict_constant, object_pairs_hook=_object_of
            )
            half = half_character_in(parsed, text=text)
        except ValueError as error:
            raise ParseError(f"JSON parse error - {error}") from error
        except RecursionError as error:
            raise ParseError("The JSON is nested too deeply to be read.") from error
        if half:  # an error could not repeat it
            raise ParseError(
                f"The JSON has {half!a}, half of a surrogate pair; send whole characters."
            )
        return parsed


class DocumentParser(JsonParser):
    """Parses documents of whole clusters, without a limit on values: readers limit the errors."""

    most_values = None


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in found if keys.count(key) > 1)
        raise ParseError(f"The key {twice[:80]!a} is there twice in one object; keep one.")
    return found
