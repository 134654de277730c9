"""Pages show what services refuse."""

from collections.abc import Iterator
from contextlib import contextmanager

from django import forms
from django.contrib import messages
from django.http import HttpRequest

from helixweb.common.refusals import Refused
from planner import PlannerError


@contextmanager
def refusals_shown(request: HttpRequest, form: forms.Form | None = None) -> Iterator[None]:
    """Context manager: turns refusals into errors of the form, or a message on the next page."""
    try:
        yield
    except (Refused, PlannerError) as error:
        if form is None:
            messages.error(request, str(error))
        else:
            form.add_error(None, str(error))
