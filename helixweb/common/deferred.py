"""Functions that apps register with each other before their modules are imported."""

from collections.abc import Callable
from typing import Any

from django.utils.module_loading import import_string


def deferred(path: str) -> Callable[..., Any]:
    """Return a function that calls the one at this dotted path, and imports its module only then.

    Every process runs `AppConfig.ready`, and most never call what it registers.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        return import_string(path)(*args, **kwargs)

    return call
