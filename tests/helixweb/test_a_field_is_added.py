"""A field that is added to a resource is in REST, forms and files: two files are touched."""

import shutil
from pathlib import Path

import pytest

from tests.e2e import blank_database
from tests.programs import ROOT, run_python

PACKAGES = ("helixweb", "planner", "runtime")
pytestmark = pytest.mark.processes
BEFORE = "    source = models.TextField(blank=True, validators=[validate_text])\n"
FIELD = '    note = models.CharField(max_length=80, blank=True, default="")\n'
# Run in the changed copy, on a database of its own.
SEEN = """
import django
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
from django.contrib.auth import get_user_model
from rest_framework.test import APIClient
from helixweb.inventory.forms import ClusterForm
from helixweb.inventory.models import Change
api = APIClient(HTTP_HOST="127.0.0.1")
api.force_authenticate(get_user_model().objects.create_superuser("ada"))
row = api.post("/api/v1/clusters/", {"name": "lab", "note": "rack 7"}, format="json").json()
assert row["note"] == "rack 7", row
assert "note" in ClusterForm().fields
told = api.get("/api/v1/export/?format=json").json()["clusters"]
assert [cluster["note"] for cluster in told] == ["rack 7"], told
told[0]["note"] = "rack 8"
document = {"format": "helixweb.inventory/1", "clusters": told}
done = api.post("/api/v1/import/", document, format="json")
assert done.status_code == 200, done.content
row = api.get(f"/api/v1/clusters/{row['id']}/").json()
assert row["note"] == "rack 8", row
lines = api.get("/api/v1/changes/?kind=cluster").json()["results"]
assert lines[0]["after"] == {"note": "rack 8"}, lines
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The code of the site, to be changed."""
    skipped = shutil.ignore_patterns("__pycache__")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=skipped)
    for name in ("templates", "static", "locale", "pyproject.toml"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "manage.py", tmp_path)  # Python would look beside the target of a link
    return tmp_path


def test_a_field_needs_its_model_and_its_migration(copy: Path, blank_sqlite: Path) -> None:
    models = copy / "helixweb/inventory/models.py"
    text = models.read_text()
    assert BEFORE in text
    models.write_text(text.replace(BEFORE, BEFORE + FIELD, 1))
    blank_database.put(blank_sqlite, copy / "data")
    environ = {
        "HELIX_DATA_DIR": str(copy / "data"),
        "DJANGO_SETTINGS_MODULE": "helixweb.settings",
        "PYTHONPATH": str(copy),
    }
    for words in (["manage.py", "makemigrations", "inventory", "-n", "note", "-v0"], ["-c", SEEN]):
        run_python(*words, environ=environ, cwd=copy)
    assert list((copy / "helixweb/inventory/migrations").glob("*_note.py"))
