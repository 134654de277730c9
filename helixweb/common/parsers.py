"""Reads JSON bodies of the REST API, within reason."""

from io import BytesIO
from typing import IO, Any

from django.conf import settings
from rest_framework import parsers
from rest_framework.exceptions import ParseError

from helixweb.common.problems import TooLarge
from runtime.protocol.half_characters import half_character_in

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
    deeply."""

    most_values: int | None = MOST_VALUES

    def parse(self, stream: IO[Any], *args: Any, **options: Any) -> dict[str, Any]:
        content = bounded(stream)
        values = content.count(b",")  # and those in texts
        if self.most_values is not None and values > self.most_values:
            raise TooLarge(
                f"The body has {values:,} values; send at most {self.most_values:,} at once."
            )
        try:
            parsed: dict[str, Any] = super().parse(BytesIO(content), *args, **options)
            half = half_character_in(parsed, text=content.decode("latin-1"))
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
