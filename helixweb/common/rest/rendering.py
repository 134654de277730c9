"""Answers as JSON, written by orjson."""

from typing import Any

import orjson
from rest_framework.renderers import JSONRenderer
from rest_framework.utils.encoders import JSONEncoder

_OPTIONS = orjson.OPT_UTC_Z | orjson.OPT_NON_STR_KEYS
_default = JSONEncoder().default


class JsonRenderer(JSONRenderer):
    """DRF's, ten times as fast; a number that JSON does not know (infinite, none) is null. What
    orjson refuses, numbers of more than 64 bits, DRF writes."""

    def render(self, data: Any, *args: Any, **options: Any) -> bytes:
        if data is None:
            return b""
        try:
            return orjson.dumps(data, _default, _OPTIONS)
        except orjson.JSONEncodeError:
            return bytes(super().render(data, *args, **options))
