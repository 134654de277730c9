"""`/join.sh` and the source that it installs: how a bare machine gets this site's agent."""

import functools
import gzip
import hashlib
import io
import shlex
import tarfile
import tomllib
from pathlib import Path

from django.conf import settings
from django.template.loader import render_to_string
from django.urls import reverse

import helixweb
from helixweb.versions import product_version

OLDEST_PYTHON = (3, 11)
_PACKAGES_FOLDER = Path(helixweb.__file__).resolve().parent.parent
_PACKAGES = ("helixweb", "planner", "runtime")
_ASSETS = ("templates", "static", "locale")
_BUILD_FILES = ("setup.py", "pyproject.toml", "README.md", "LICENSE")
_SOURCES = frozenset({".py", ".c", ".h", ".txt"})  # txt: pins of engines


def join_script() -> str:
    """A POSIX shell script that installs this site's version of the agent, then joins."""
    digest = hashlib.sha256(source_archive()).hexdigest()
    source = f"{settings.HELIX_URL}{reverse('join-source')}#sha256={digest}"
    project = tomllib.loads((_build_folder() / "pyproject.toml").read_text("utf-8"))
    needed = project["project"]["optional-dependencies"]["agent"]
    context = {
        "site": settings.HELIX_URL,
        "site_quoted": shlex.quote(settings.HELIX_URL),
        "source_quoted": shlex.quote(source),
        "python": OLDEST_PYTHON,
        "python_text": ".".join(map(str, OLDEST_PYTHON)),
        "torch": next(one for one in needed if one.startswith("torch")),
        "build_requirements": shlex.join(project["build-system"]["requires"]),
    }
    return render_to_string("operations/join.sh", context)


@functools.cache
def source_archive() -> bytes:
    """The source of this installation as a `.tar.gz` that pip installs; the same bytes each time.

    The target builds it, since what was compiled here fits this machine only.
    """
    top = f"helixweb-{product_version()}"
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as archive,
    ):
        for name, path in sorted(_files().items()):
            entry = tarfile.TarInfo(f"{top}/{name}")
            content = path.read_bytes()
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def _files() -> dict[str, Path]:
    """Files of the archive, by their names there."""
    assets, build = settings.ASSETS, _build_folder()
    found = {name: build / name for name in _BUILD_FILES}
    for folder in {_PACKAGES_FOLDER, build}:
        for package in _PACKAGES:
            for path in (folder / package).rglob("*"):
                name = path.relative_to(folder)
                if path.suffix in _SOURCES and "_assets" not in name.parts:
                    found[name.as_posix()] = path
    for kind in _ASSETS:
        for path in (assets / kind).rglob("*"):
            if path.is_file() and path.suffix != ".po":
                found[path.relative_to(assets).as_posix()] = path
    return found


def _build_folder() -> Path:
    """Folder of the files that build the packages: beside them in a checkout; for an installed
    wheel, where setup.py puts it."""
    assets: Path = settings.ASSETS
    return assets if assets == _PACKAGES_FOLDER else assets / "source"
