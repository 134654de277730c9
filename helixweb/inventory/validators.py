"""Checks shared by rows, forms, the REST API and imports; messages name value and remedy."""

import math
import re
import unicodedata
from urllib.parse import urlsplit

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from planner import RESERVED_NAMES
from runtime.protocol.coordinators import is_coordinator
from runtime.protocol.vllm_flags import parse_vllm_flags

MAX_LAYERS = 10_000
TAG = re.compile(r"[\w.-]+")
HTTP_URL = re.compile(r"https?://[A-Za-z0-9.:\[\]_-]+(/[A-Za-z0-9._~/-]*)?")


def validate_positive(value: float) -> None:
    """A finite number above 0."""
    if not (math.isfinite(value) and value > 0):
        raise ValidationError(
            _("%(value)s is not allowed; give a number greater than 0.") % {"value": value}
        )


validate_positive.in_schema = {"exclusiveMinimum": 0}  # type: ignore[attr-defined]


def validate_not_negative(value: float) -> None:
    """A finite number, 0 or above."""
    if not (math.isfinite(value) and value >= 0):
        raise ValidationError(
            _("%(value)s is not allowed; give 0 or a greater number.") % {"value": value}
        )


validate_not_negative.in_schema = {"minimum": 0}  # type: ignore[attr-defined]


def validate_name(value: str) -> None:
    """Printable text without blanks at its ends."""
    if value != value.strip():
        raise ValidationError(
            _("%(value)s begins or ends with a blank; remove it.") % {"value": repr(value)}
        )
    if any(unicodedata.category(character).startswith("C") for character in value):
        raise ValidationError(
            _("%(value)s contains a control character; remove it.") % {"value": repr(value)}
        )


def validate_node_name(value: str) -> None:
    """A name that means no other vertex of the flow graph, and no coordinator."""
    validate_name(value)
    if value in RESERVED_NAMES or is_coordinator(value):
        raise ValidationError(
            _("%(value)s is reserved; choose another name (reserved: %(names)s).")
            % {"value": repr(value), "names": ", ".join(sorted(RESERVED_NAMES))}
        )


def validate_members(values: object) -> None:
    """A list of names, each once."""
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValidationError(
            _("%(values)s is no list of names; give one of them.") % {"values": str(values)[:80]}
        )
    if not values:
        raise ValidationError(_("There is no member; name nodes, regions or 'coordinator'."))
    for value in values:
        validate_name(value)
        if values.count(value) > 1:
            raise ValidationError(
                _("%(value)s is named twice; name every member once.") % {"value": repr(value)}
            )


def validate_tag(value: str) -> None:
    """Letters, digits, dots, dashes and underscores: one word in an address and in a list."""
    if not TAG.fullmatch(value):
        raise ValidationError(
            _("%(value)s is no tag; write one word of letters, digits, '.', '-' and '_'.")
            % {"value": repr(value)}
        )


def validate_text(value: str) -> None:
    """Printable text; tabs and line ends are allowed."""
    if any(unicodedata.category(c) == "Cc" and c not in "\t\r\n" for c in value):
        raise ValidationError(
            _("%(value)s contains a control character; remove it.") % {"value": repr(value[:80])}
        )


def validate_http_url(value: str) -> None:
    """Scheme, host, port and path only: what a shell, a page and a request read alike."""
    try:
        port = urlsplit(value).port
    except ValueError:
        port = 0
    if port == 0 or not HTTP_URL.fullmatch(value):
        raise ValidationError(
            _(
                "%(value)s is no address of a server; give one like "
                "http://10.0.0.5:8100, without user, query or fragment."
            )
            % {"value": repr(value)}
        )


def validate_vllm_flags(value: str) -> None:
    """Options of `vllm serve` that a site may pass on."""
    try:
        parse_vllm_flags(value)
    except ValueError as error:
        raise ValidationError(str(error)) from None


def validate_curve(values: object) -> None:
    """A list of finite numbers, 0 or above: one for each number of layers held."""
    if not isinstance(values, list):
        raise ValidationError(_("Give a list of numbers, one for each number of layers held."))
    if len(values) > MAX_LAYERS:
        raise ValidationError(
            _("The list has %(count)s entries; at most %(max_layers)s are kept.")
            % {"count": len(values), "max_layers": MAX_LAYERS}
        )
    for layers, value in enumerate(values, start=1):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValidationError(
                _("The entry for %(layers)s layers is %(value)s; give a number.")
                % {"layers": layers, "value": repr(value)}
            )
        validate_not_negative(value)
