"""`python -m tests.e2e.in_site MODULE ARGUMENT...`: run `main` of a module of the tests in the
site of the environment, and print what it returns as JSON.
"""

import json
import os
import sys
from importlib import import_module
from typing import Any

import django

from helixweb.demo.processes import Processes


def main(module: str, *arguments: str) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "helixweb.settings")
    os.environ["HELIX_HOSTS"] = "testserver"  # that Django's test client asks
    django.setup()
    print(json.dumps(import_module(module).main(*arguments)))


def run_in_site(processes: Processes, module: str, *arguments: str) -> Any:
    """What `main` of the module returns in the environment of these processes."""
    command = [sys.executable, "-m", "tests.e2e.in_site", module, *arguments]
    return json.loads(processes.run(module, command))


if __name__ == "__main__":
    main(*sys.argv[1:])
