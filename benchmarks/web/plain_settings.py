"""Plain Django with the site's models and database: what `api_lists` compares with."""

from helixweb.settings import *  # noqa: F403

ROOT_URLCONF = "benchmarks.web.plain_urls"
# As `startproject` has it.
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
