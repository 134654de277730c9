"""ASGI entry point: `uvicorn helixweb.asgi:application`."""

import gc
import os
import warnings

import django
from django.urls import get_resolver

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "helixweb.settings")
# WhiteNoise gives files in pieces and Django reads them whole under ASGI; the largest has 5 MB.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous")
django.setup(set_prefix=False)

from helixweb.common.rest.handler import Application  # noqa: E402 - after the models

application = Application()
OBJECTS_OF_A_PAGE = 50_000


def _settle() -> None:
    """Load what the first request of each page would, and keep it out of garbage collections.

    What Django and the templates are made of stays as long as the process; with a thousand nodes,
    looking through it all took some pages 0.1 s longer. A page of them makes tens of thousands of
    objects that its end frees: by Python's own thresholds they were looked through again and again
    meanwhile, and all plans that are kept with them.
    """
    get_resolver().url_patterns  # noqa: B018 - imports all views
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS_OF_A_PAGE)


_settle()
