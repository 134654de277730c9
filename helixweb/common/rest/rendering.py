"""Answers as JSON."""

import json
from typing import Any

from rest_framework.renderers import JSONRenderer


class JsonRenderer(JSONRenderer):
    """DRF's; a number that JSON does not know (infinite, none) is null, as in charts."""

    def render(self, data: Any, *args: Any, **options: Any) -> bytes:
        try:
            return bytes(super().render(data, *args, **options))
        except ValueError:
            text = json.dumps(data, cls=self.encoder_class)
            plain = json.loads(text, parse_constant=lambda _name: None)
            return bytes(super().render(plain, *args, **options))
