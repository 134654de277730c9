"""What `helixweb up` has done in a process of its own before the site's processes start."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import blank_database

PREPARE = [sys.executable, "-m", "helixweb.operations.prepare", "--migrate", "--coordinator-of", ""]


def prepared(data: Path) -> dict[str, Any]:
    """The answer of one start of a site with that data folder."""
    environment = {**os.environ, "HELIX_DATA_DIR": str(data), "DATABASE_URL": ""}
    environment["DJANGO_SETTINGS_MODULE"] = "helixweb.settings"
    done = subprocess.run(PREPARE, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.processes
def test_a_coordinator_that_the_site_does_not_know_gets_a_token_at_the_next_start(
    tmp_path: Path, blank_sqlite: Path
) -> None:
    data = tmp_path / "data"
    blank_database.put(blank_sqlite, data)
    assert prepared(data)["cluster"] == "main"
    membership = {"credential": "hlxn_of_another_site", "cluster": "main"}
    (data / "coordinator").mkdir(exist_ok=True)
    (data / "coordinator" / "identity.json").write_text(json.dumps({"membership": membership}))
    again = prepared(data)
    assert again["migrated"] == 0
    assert again["coordinator_token"].startswith("hlxj_")
