"""`python -m tests.e2e.in_site MODULE ARGUMENT...`: run `main` of a module of the tests in the
site of the environment, and print what it returns as JSON.
"""

import json
import os
import sys
from importlib import import_module

import django


def main(module: str, *arguments: str) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "helixweb.settings")
    os.environ["HELIX_HOSTS"] = "testserver"  # that Django's test client asks
    django.setup()
    print(json.dumps(import_module(module).main(*arguments)))


if __name__ == "__main__":
    main(*sys.argv[1:])
