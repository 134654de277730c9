"""Bodies of the export and import operations that are not JSON."""

from collections.abc import Mapping
from typing import IO, Any

import yaml
from django.conf import settings
from rest_framework import parsers, renderers

from helixweb.common.problems import TooLarge
from planner.yaml_reader import NUMBER

YAML, CSV = "application/yaml", "text/csv"
_Base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_Base):  # type: ignore[misc]  # which of two is known when it runs
    """Quotes texts like 1e5 or 0o17, which YAML 1.2 and our reader take for numbers."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", NUMBER, list("-+0123456789."))


def yaml_text(document: Any) -> str:
    """One line for every row without lists in it, so that files compare well line by line."""
    text: str = yaml.dump(
        document,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=None,
        width=1_000_000,
    )
    return text


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
