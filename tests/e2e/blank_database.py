"""The SQLite file of a new site: migrated once a test run, copied into each site's folder."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAME = "helixweb.sqlite3"  # where settings look for it


def make(folder: Path) -> Path:
    """Migrate an empty database in this folder, which is made; its file."""
    services = {"HELIX_DATA_DIR": str(folder), "DATABASE_URL": "", "REDIS_URL": ""}
    command = [sys.executable, "manage.py", "migrate", "--no-input", "--skip-checks", "-v0"]
    subprocess.run(command, cwd=ROOT, env={**os.environ, **services}, check=True)
    return folder / NAME


def put(database: Path, data_dir: Path) -> None:
    """Before anything of the site with that HELIX_DATA_DIR is started."""
    data_dir.mkdir(mode=0o700, parents=True)
    shutil.copy(database, data_dir / NAME)
