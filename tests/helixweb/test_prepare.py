"""What `helixweb up` has done in a process of its own before the site's processes start."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PREPARE = [sys.executable, "-m", "helixweb.operations.prepare", "--migrate", "--coordinator-of", ""]


def prepared(data: Path) -> dict[str, Any]:
    """The answer of one start of a site with that data folder."""
    environment = {**os.environ, "HELIX_DATA_DIR": str(data), "DATABASE_URL": ""}
    environment["DJANGO_SETTINGS_MODULE"] = "helixweb.settings"
    done = subprocess.run(PREPARE, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.processes
def test_a_coordinator_that_the_site_does_not_know_gets_a_token_at_the_next_start(
    tmp_path: Path,
) -> None:
    assert prepared(tmp_path)["cluster"] == "main"
    membership = {"credential": "hlxn_of_another_site", "cluster": "main"}
    (tmp_path / "coordinator").mkdir(exist_ok=True)
    (tmp_path / "coordinator" / "identity.json").write_text(json.dumps({"membership": membership}))
    again = prepared(tmp_path)
    assert again["migrated"] == 0
    assert again["coordinator_token"].startswith("hlxj_")
