"""What `helixweb up` has done in a process of its own before the site's processes start."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import blank_database
from tests.programs import run_python

PREPARE = ["-m", "helixweb.operations.prepare", "--migrate", "--coordinator-of", ""]


def prepared(data: Path) -> dict[str, Any]:
    """The answer of one start of a site with that data folder."""
    settings = {"HELIX_DATA_DIR": str(data), "DJANGO_SETTINGS_MODULE": "helixweb.settings"}
    return json.loads(run_python(*PREPARE, environ=settings).stdout)


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
