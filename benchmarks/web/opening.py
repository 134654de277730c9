"""Opens a site's database in this process, before anything of Django's is imported."""

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def site_arguments(parser: ArgumentParser) -> None:
    """Which site: its folder, and a PostgreSQL database if it is not kept there."""
    parser.add_argument("--data-dir", type=Path, required=True, help="the site's HELIX_DATA_DIR")
    parser.add_argument("--database-url", default="", help="postgres://…; else SQLite in the data")


def site_environment(arguments: Namespace) -> dict[str, str]:
    """What a process of that site needs."""
    return {
        "DJANGO_SETTINGS_MODULE": "helixweb.settings",
        "HELIX_DATA_DIR": str(arguments.data_dir.resolve()),
        "DATABASE_URL": arguments.database_url,
        "REDIS_URL": "",
        "HELIX_LOG_LEVEL": "WARNING",
    }


def open_site(arguments: Namespace) -> None:
    """Set Django up for the site and migrate it; models may be imported afterwards."""
    from django.core.management import call_command

    from helixweb.django_loading import django_loaded

    os.environ.update(site_environment(arguments))
    with django_loaded():  # as the web process, with its way of collecting garbage
        from helixweb.common.rest.handler import Application

        Application()
    call_command("migrate", verbosity=0)
