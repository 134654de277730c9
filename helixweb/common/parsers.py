"""Reads JSON bodies of the REST API, within reason."""

from collections.abc import Mapping
from io import BytesIO
from typing import IO, Any

from django.conf import settings
from rest_framework import parsers
from rest_framework.exceptions import ParseError

from helixweb.common.problems import TooLarge


class JsonParser(parsers.JSONParser):
    """DRF's, with a limit on size and a refusal of what is nested too deeply."""

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        most = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        content = stream.read(most + 1)
        if len(content) > most:
            raise TooLarge
        try:
            return super().parse(BytesIO(content), media_type, parser_context)
        except RecursionError as error:
            raise ParseError("The JSON is nested too deeply to be read.") from error
