"""The site's settings, with a way to have all rows of a list written anew (`api_lists`)."""

from helixweb.settings import *  # noqa: F403
from helixweb.settings import MIDDLEWARE as _OURS

MIDDLEWARE = ["benchmarks.web.forgetting.forget_rows", *_OURS]
