"""`manage.py loginlink NAME`: print a one-time login link, making the user if need be."""

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.urls import reverse

from helixweb.common import login_links
from helixweb.common.management.site_command import SiteCommand


class Command(SiteCommand):
    help = "Print a one-time login link; creates the user (an administrator) if there is none."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username")

    def handle(self, *args: Any, **options: Any) -> None:
        users = get_user_model()
        user, _ = users.objects.get_or_create(
            username=options["username"], defaults={"is_staff": True, "is_superuser": True}
        )
        token = login_links.create(user)
        self.stdout.write(f"{settings.HELIX_URL}{reverse('login-link', args=[token])}")
