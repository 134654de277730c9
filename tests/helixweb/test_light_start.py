"""Each process of the site imports only what it needs: workers, commands and beat start often."""

import json
from pathlib import Path

import pytest

from tests.e2e import blank_database
from tests.programs import run_python

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
PLANNER = {"planner.planning", "planner.placers.portfolio", "highspy"}
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
    code: str, unneeded: set[str], tmp_path: Path, blank_sqlite: Path
) -> None:
    blank_database.put(blank_sqlite, tmp_path / "data")
    code += "\nimport json, sys; print(json.dumps(list(sys.modules)))"
    done = run_python("-c", code, environ={"HELIX_DATA_DIR": str(tmp_path / "data")})
    assert unneeded & set(json.loads(done.stdout.splitlines()[-1])) == set()
