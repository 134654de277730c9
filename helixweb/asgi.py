"""ASGI entry point: `uvicorn helixweb.asgi:application`."""

import gc
import os
import warnings

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "helixweb.settings")
# WhiteNoise gives files in pieces and Django reads them whole under ASGI; the largest has 5 MB.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous")
# What loads now stays loaded: collections would look through it again and again.
gc.disable()
django.setup(set_prefix=False)

from helixweb.common.rest.handler import Application  # noqa: E402 - after the models

application = Application()
OBJECTS_OF_A_PAGE = 50_000


def _settle() -> None:
    """Keep what is loaded by now out of garbage collections.

    The modules of Django, the pages and the templates stay as long as the process: with a thousand
    nodes, looking through them took some pages 0.1 s longer. A page of a thousand nodes makes tens
    of thousands of objects that its end frees; with Python's own thresholds each such page started
    several collections, which also looked through all cached plans.
    """
    gc.freeze()
    gc.set_threshold(OBJECTS_OF_A_PAGE)
    gc.enable()


_settle()
