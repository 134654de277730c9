"""Load Django in a process of the site."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import django

from runtime.module_loading import loading

# A page of a thousand nodes makes tens of thousands of objects that its end frees. With Python's
# own threshold, each such page starts several collections, which also look through cached plans.
OBJECTS_OF_A_PAGE = 50_000


@contextmanager
def django_loaded() -> Iterator[None]:
    """Load settings and models, then what is imported within, without the garbage collector."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "helixweb.settings")
    with loading("helixweb.inventory.models", threshold=OBJECTS_OF_A_PAGE):
        django.setup(set_prefix=False)
        yield
