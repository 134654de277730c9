"""`python -m benchmarks.install.fresh`: fresh clone -> wheel -> new venv -> `helixweb up`."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Mapping
from pathlib import Path

from helixweb.demo.processes import free_port

ROOT = Path(__file__).resolve().parents[2]
MOST_BYTES, MOST_SECONDS = 60_000_000, 20.0
INSIDE = """
import json
from pathlib import Path
import helixweb
top = Path(helixweb.__file__).parents[1]
assets = top / "helixweb" / "_assets"
print(json.dumps({
    "templates": len(list(assets.glob("templates/**/*.html"))),
    "static": len(list(assets.glob("static/**/*.*"))),
    "translations": len(list(assets.glob("locale/**/*.mo"))),
    "migrations": len(list(top.glob("helixweb/*/migrations/0*.py"))),
    "compiled": sorted(
        path.name.partition(".")[0]
        for name in ("planner", "runtime") for path in top.glob(f"{name}/**/_*.so")
    ),
}))
"""


def fresh(folder: Path, *, extras: str, constraints: bool) -> bool:
    """Whether all is within bounds; prints each figure."""
    clone, built, downloads = (folder / name for name in ("clone", "built", "downloads"))
    _run("git", "clone", "-q", "--depth", "1", f"file://{ROOT}", str(clone))
    _run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(built), str(clone))
    (wheel,) = built.glob("*.whl")
    print(f"wheel                {wheel.name}, {wheel.stat().st_size / 1e6:.1f} MB")
    pinned = ("-c", str(clone / "constraints.txt")) if constraints else ()
    pip = (sys.executable, "-m", "pip", "download", "-q", *pinned)
    _run(*pip, "-d", str(downloads), f"{wheel}{extras}")
    files = sorted(downloads.iterdir(), key=lambda path: -path.stat().st_size)
    size = sum(path.stat().st_size for path in files)
    largest = ", ".join(f"{f.name.split('-')[0]} {f.stat().st_size / 1e6:.1f}" for f in files[:6])
    print(f"downloads            {size / 1e6:.1f} MB in {len(files)} files ({largest} MB)")

    place = folder / "venv"
    venv.create(place, with_pip=True)
    python = place / "bin" / "python"
    begin = time.monotonic()
    _run(
        str(python), "-m", "pip", "install", "-q", "--no-index", "--find-links", str(downloads),
        f"{wheel}{extras}",
    )  # fmt: skip
    print(f"installed            {time.monotonic() - begin:.1f} s, from the downloads")
    print(f"inside               {_run(str(python), '-c', INSIDE, cwd=folder).strip()}")
    _run(
        str(python), "-m", "django", "check", "--deploy", "--fail-level", "WARNING",
        cwd=folder, HELIX_URL="https://helix.example", HELIX_DATA_DIR=str(folder / "checked"),
        DJANGO_SETTINGS_MODULE="helixweb.settings",
    )  # fmt: skip
    print("check --deploy       nothing to say")

    command = [
        str(place / "bin" / "helixweb"), "up", "--check", "--json", "--data", str(folder / "data"),
        "--port", str(free_port()), "--coordinator-port", str(free_port()),
    ]  # fmt: skip
    begin = time.monotonic()
    told = json.loads(_run(*command, cwd=folder))
    whole = time.monotonic() - begin
    services = " and ".join(n for n in ("DATABASE_URL", "REDIS_URL") if os.environ.get(n))
    print(f"services             {services or 'none'}; {told['migrated']} migrations")
    print(f"up and healthy       {told['seconds']:.1f} s; ended again after {whole:.1f} s")
    within = size <= MOST_BYTES or bool(extras)  # the bound is of the base install
    return within and told["seconds"] <= MOST_SECONDS


def _run(*command: str, cwd: Path | None = None, **environ: str) -> str:
    known: Mapping[str, str] = {
        key: value for key, value in os.environ.items()
        if not key.startswith("HELIX_") and key != "PYTHONPATH"
    }  # fmt: skip
    done = subprocess.run(
        command, cwd=cwd, env={**known, **environ}, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--extras", default="", help="e.g. [postgres]")
    parser.add_argument("--newest", action="store_true", help="without constraints.txt")
    arguments = parser.parse_args()
    extras = arguments.extras or ("[postgres]" if os.environ.get("DATABASE_URL") else "")
    with tempfile.TemporaryDirectory(prefix="helixweb-install-") as folder:
        if not fresh(Path(folder), extras=extras, constraints=not arguments.newest):
            raise SystemExit(f"beyond {MOST_BYTES / 1e6:.0f} MB or {MOST_SECONDS:.0f} s")


if __name__ == "__main__":
    main()
