"""`manage.py apikey`: make API keys for users, list those on an old pepper too, end them.

manage.py apikey USER NAME --scopes read,write --days 30 --network 192.0.2.0/24
manage.py apikey --list [USER]
manage.py apikey --revoke KEY
"""

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.core.management.base import CommandError
from django.utils import timezone

from helixweb.access import keys
from helixweb.common import auth
from helixweb.common.actor import commanding
from helixweb.common.management.site_command import SiteCommand
from helixweb.common.models import ApiKey
from helixweb.common.peppers import peppers


class Command(SiteCommand):
    help = "Create an API key for an existing user and print it (it is not shown again); list; end."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username", nargs="?")
        parser.add_argument("name", nargs="?")
        parser.add_argument("--scopes", default=auth.READ, help="comma-separated; default: read")
        parser.add_argument("--cluster", help="the name of the only cluster that it is for")
        parser.add_argument("--days", type=int, help="until it expires; default: never")
        parser.add_argument("--network", action="append", default=[], help="may be repeated")
        parser.add_argument("--requests-per-min", type=int)
        parser.add_argument("--tokens-per-min", type=int)
        parser.add_argument("--tokens-per-day", type=int)
        parser.add_argument("--list", action="store_true", help="those that have not ended")
        parser.add_argument("--revoke", metavar="KEY", help="the part before the dot")

    def handle(self, *args: Any, **options: Any) -> None:
        with commanding("manage.py apikey"):
            if options["list"]:
                self._list(options["username"])
            elif options["revoke"]:
                self._revoke(options["revoke"])
            else:
                self._make(options)

    def _make(self, options: dict[str, Any]) -> None:
        if not options["username"] or not options["name"]:
            raise CommandError("Name a user and the new key, or use --list or --revoke KEY.")
        user = get_user_model().objects.filter(username=options["username"]).first()
        if user is None:
            raise CommandError(
                f"There is no user {options['username']!r}; `manage.py loginlink` creates one."
            )
        scopes = [scope.strip() for scope in options["scopes"].split(",") if scope.strip()]
        try:
            key = keys.make(
                name=options["name"],
                user=user,
                scopes=scopes,
                cluster=_cluster(options["cluster"]),
                **_limits(options),
            )
        except ValueError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(key.secret)

    def _list(self, username: str | None) -> None:
        current = peppers()[0].id
        rows = ApiKey.objects.select_related("user").filter(revoked_at__isnull=True)
        for row in rows.filter(user__username=username) if username else rows:
            hangs = "" if row.pepper == current else "  (on an old pepper)"
            scopes = ",".join(row.scopes)
            self.stdout.write(f"hlx_{row.key}  {row.user}  {row.name}  {scopes}{hangs}")

    def _revoke(self, text: str) -> None:
        key = text.removeprefix("hlx_").partition(".")[0]
        row = ApiKey.objects.select_related("user").filter(key=key).first()
        if row is None:
            raise CommandError(f"There is no key hlx_{key}; `manage.py apikey --list` has them.")
        ended = keys.end(row)
        self.stdout.write("It is revoked." if ended else "It was revoked before.")


def _cluster(name: str | None) -> Any:
    if name is None:
        return None
    found = apps.get_model("inventory.Cluster").unscoped.filter(name=name).first()
    if found is None:
        raise CommandError(f"There is no cluster {name!r}.")
    return found


def _limits(options: dict[str, Any]) -> dict[str, Any]:
    for name in ("days", *keys.BUDGETS):
        if options[name] is not None and options[name] < 1:
            raise CommandError(f"--{name.replace('_', '-')} is {options[name]}; give 1 or more.")
    days = options["days"]
    return {
        "expires_at": timezone.now() + timedelta(days=days) if days else None,
        "networks": options["network"],
        **{name: options[name] for name in keys.BUDGETS},
    }
