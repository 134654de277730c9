"""The reader's language: what was chosen on the settings page, else the site's.

Not the browser's: what the site and its processes write down (events, logs, errors of searches) is
in English whoever reads it, and nobody should get a mixture unasked.
"""

from contextlib import AbstractContextManager

from django.conf import settings
from django.http import HttpRequest
from django.utils import translation

COOKIE = "language"


def speaking(request: HttpRequest) -> AbstractContextManager[None]:
    """Within, texts are in the reader's language."""
    wanted = request.COOKIES.get(COOKIE, "")
    known = wanted in dict(settings.LANGUAGES)
    return translation.override(wanted if known else settings.LANGUAGE_CODE)
