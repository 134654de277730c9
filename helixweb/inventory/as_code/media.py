"""Bodies of the export and import operations that are not JSON."""

from collections.abc import Mapping
from typing import IO, Any

from django.conf import settings
from rest_framework import parsers, renderers

from helixweb.common.problems import TooLarge
from helixweb.inventory.as_code.yaml_text import yaml_text

YAML, CSV = "application/yaml", "text/csv"


class _Bytes(parsers.BaseParser):
    """`{"content": bytes}`, as they came; who reads them looks at their encoding."""

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        most = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        content: bytes = stream.read(most + 1)
        if len(content) > most:
            raise TooLarge
        return {"content": content}


class YamlBytes(_Bytes):
    media_type = YAML


class CsvBytes(_Bytes):
    media_type = CSV


class YamlRenderer(renderers.BaseRenderer):
    media_type, format, charset = YAML, "yaml", "utf-8"

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,
        renderer_context: Mapping[str, Any] | None = None,
    ) -> str:
        return yaml_text(data)


class CsvRenderer(renderers.BaseRenderer):
    """Of text that is CSV already."""

    media_type, format, charset = CSV, "csv", "utf-8"

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,
        renderer_context: Mapping[str, Any] | None = None,
    ) -> str:
        return str(data)
