#!/usr/bin/env python
"""Django's command line for HelixWeb."""

import sys

from django.core.management import execute_from_command_line

from helixweb.django_loading import django_loaded


def main() -> None:
    with django_loaded():
        pass
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
