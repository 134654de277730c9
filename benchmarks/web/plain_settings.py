"""The site's settings, with plain Django views beside it: what `api_lists` compares with."""

from helixweb.settings import *  # noqa: F403

ROOT_URLCONF = "benchmarks.web.plain_urls"
