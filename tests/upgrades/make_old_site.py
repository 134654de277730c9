"""`python -m tests.upgrades.make_old_site COMMIT`: the database of a site of an earlier commit.

Runs that commit's own code in a folder of its own: its migrations, and its own world of rows. What
comes out is SQL, small and readable with `zcat`; `test_upgrade.py` brings it up to today.
"""

import argparse
import gzip
import io
import os
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def make(commit: str) -> bytes:
    """The SQL of its database, compressed."""
    packed = subprocess.run(
        ["git", "archive", commit], cwd=ROOT, check=True, stdout=subprocess.PIPE
    )
    with tempfile.TemporaryDirectory() as folder:
        code, data = Path(folder) / "code", Path(folder) / "data"
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as tree:
            tree.extractall(code, filter="data")
        environ = {
            **os.environ, "HELIX_DATA_DIR": str(data), "DATABASE_URL": "", "REDIS_URL": "",
            "PYTHONPATH": str(code),
        }  # fmt: skip
        for words in (
            ["manage.py", "migrate", "--no-input", "-v0"],
            ["-m", "tests.e2e.in_site", "tests.e2e.site_world", "home", "http://127.0.0.1:9"],
        ):
            subprocess.run([sys.executable, *words], cwd=code, env=environ, check=True)
        database = sqlite3.connect(data / "helixweb.sqlite3")
        lines = "\n".join(database.iterdump()).encode()
        database.close()
    return gzip.compress(lines, mtime=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit")
    arguments = parser.parse_args()
    path = Path(__file__).with_name(f"site_of_{arguments.commit}.sql.gz")
    path.write_bytes(make(arguments.commit))
    print(path, path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
