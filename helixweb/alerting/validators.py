"""Validators of alerting's fields."""

import math
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.utils.translation import gettext as _

from helixweb.alerting.outbound import TargetRefused, parse_target

LONGEST_S = 30 * 86_400.0
MOST_ADDRESSES = 20


def validate_seconds(value: float) -> None:
    if not 0 <= value <= LONGEST_S:
        raise ValidationError(_("Give 0 to %(most)s seconds.") % {"most": f"{LONGEST_S:,.0f}"})


def validate_threshold(value: float) -> None:
    if not (math.isfinite(value) and 0 <= value <= 1e15):
        raise ValidationError(_("Give a number from 0 to 1e15."))


def validate_url(value: str) -> None:
    """Validate a URL's form; its address is checked whenever something is sent."""
    if not value:
        return
    try:
        parse_target(value)
    except TargetRefused as error:
        raise ValidationError(str(error)) from error


def validate_addresses(value: Any) -> None:
    if not isinstance(value, list) or len(value) > MOST_ADDRESSES:
        raise ValidationError(
            _("Give a list of at most %(most)s addresses.") % {"most": MOST_ADDRESSES}
        )
    for address in value:
        try:
            validate_email(address)
        except (ValidationError, TypeError) as error:
            raise ValidationError(
                _("%(address)s is no e-mail address.") % {"address": repr(address)[:100]}
            ) from error
