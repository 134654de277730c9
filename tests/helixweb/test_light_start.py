"""Each process of the site imports only what it needs: workers, commands and beat start often."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e import blank_database
from tests.made_once import made_once

pytestmark = pytest.mark.processes

SETUP = "import django; django.setup()"
WORKER = "import helixweb.celery as site; site.app.loader.import_default_modules()"
COMMAND_LINE = "import helixweb.command_line.main"
WEB = "import helixweb.asgi"
AGENT = "import runtime.agent.join"
LOGIN_LINK = (
    "import sys; sys.argv = ['manage.py', 'loginlink', 'ada']; "
    "import runpy; runpy.run_path('manage.py', run_name='__main__')"
)
PREPARE = (
    "from helixweb.operations import prepare; "
    "prepare.main(['--migrate', '--login', '', '--coordinator-of', ''])"
)
REST = {"rest_framework.views", "drf_spectacular.openapi", "django.test"}
PLANNER = {"planner.planning", "planner.placers.choice", "highspy"}
# What plan runs, explanations, simulations and mixes of models are worked on by.
PLAN_TASKS = {f"helixweb.planning.services.{name}" for name in ("explaining", "mixing", "solving")}


@pytest.mark.parametrize(
    ("code", "unneeded"),
    [
        (SETUP, REST | PLANNER | PLAN_TASKS | {"httpx", "numpy", "plotly", "pydantic"}),
        (WORKER, REST | PLAN_TASKS | {"plotly", "helixweb.urls"}),
        (WEB, {"gurobipy", "torch"}),
        (LOGIN_LINK, REST | PLANNER | PLAN_TASKS | {"helixweb.urls", "plotly"}),
        (PREPARE, REST | PLANNER | PLAN_TASKS | {"helixweb.urls", "plotly"}),
        (AGENT, PLANNER | {"django", "numpy", "torch"}),
        (COMMAND_LINE, REST | PLANNER | {"django", "celery", "plotly", "numpy"}),
    ],
    ids=["setup", "worker", "web", "login-link", "prepare", "agent", "command-line"],
)
def test_a_process_imports_only_what_it_needs(
    code: str, unneeded: set[str], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    blank = made_once(tmp_path_factory, "blank-database", blank_database.make)
    blank_database.put(blank / blank_database.NAME, tmp_path / "data")
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport json, sys; print(json.dumps(list(sys.modules)))"],
        env={**os.environ, "HELIX_DATA_DIR": str(tmp_path / "data")},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert unneeded & set(json.loads(done.stdout.splitlines()[-1])) == set()
