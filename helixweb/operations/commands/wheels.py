"""`helixweb wheels`: everything that machines without a way to the internet install from."""

import functools
import http.server
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from helixweb.command_line.command import Verbs
from helixweb.command_line.failures import CommandFailed
from helixweb.command_line.numbers import Port
from helixweb.command_line.surroundings import Surroundings
from helixweb.operations.site_processes import check_free
from helixweb.versions import product_version

_WHEEL = re.compile(r"(?P<name>[^-]+)-[^-]+(-\d[^-]*)?-[^-]+-[^-]+-[^-]+\.whl")
wheels = Verbs(
    "`gather` fetches this version and all it needs into a folder, on a machine "
    "with internet; `serve` is where machines without it install from: "
    "pip install --index-url http://THIS:8200/simple/ 'helixweb[agent]'."
)


@wheels(connects=False)
def _gather(
    around: Surroundings,
    folder: Path,
    *,
    extras: str = "agent",
    from_: str = "",
    constraint: Path | None = None,
    pip: Sequence[str] = (),
) -> None:
    """Fetch packages into a folder.

    --extras: which extras, e.g. agent,postgres (%(default)s)
    --from SOURCE: a checkout or a wheel of HelixWeb (default: this version from the index)
    --constraint: versions to take, e.g. constraints.txt
    --pip: an option of pip, e.g. --pip=--index-url=URL
    """
    named = f"helixweb[{extras}]" if extras else "helixweb"
    if from_:
        what = f"{named} @ {Path(from_).resolve().as_uri()}"
    else:
        what = f"{named}=={product_version()}"
    pinned = ["--constraint", str(constraint)] if constraint else []
    command = [sys.executable, "-m", "pip", "wheel", "--wheel-dir", str(folder)]
    done = subprocess.run([*command, *pinned, *pip, what], check=False)
    if done.returncode != 0:
        raise CommandFailed("pip could not gather all, see above")
    around.say(f"{len(list(folder.glob('*.whl')))} wheels in {folder}")


@wheels(connects=False)
def _serve(
    around: Surroundings, folder: Path, *, host: str = "127.0.0.1", port: Port = 8200
) -> None:
    """Let machines install from a folder.

    --host: address (%(default)s)
    --port: port (%(default)s)
    """
    if not any(folder.glob("*.whl")):
        raise CommandFailed(f"there are no wheels in {folder}; fill it: helixweb wheels gather")
    check_free(host, port, option="--port")
    with make_server(folder, host, port) as server:
        bound, number = server.server_address[:2]
        around.say(f"pip install --index-url http://{bound!s}:{number}/simple/ 'helixweb[agent]'")
        around.say("(elsewhere add --trusted-host with this machine's address; Ctrl-C ends it)")
        server.serve_forever()


@contextmanager
def make_server(folder: Path, host: str, port: int) -> Iterator[http.server.HTTPServer]:
    """A package index (PEP 503) of the wheels of a folder, and of nothing else in it."""
    with tempfile.TemporaryDirectory(prefix="helixweb-wheels-") as index:
        handler = functools.partial(_Index, folder.resolve(), directory=index)
        with http.server.ThreadingHTTPServer((host, port), handler) as server:
            yield server


class _Index(http.server.SimpleHTTPRequestHandler):
    """Serves `simple/PROJECT/`, a page of links to the current wheels."""

    def __init__(self, wheels: Path, *arguments: Any, directory: str) -> None:
        self._wheels = wheels
        super().__init__(*arguments, directory=directory)

    def do_GET(self) -> None:
        link_wheels(self._wheels, Path(self.directory) / "simple")
        if self.path.startswith("/simple"):
            super().do_GET()
        else:
            self.send_error(404)


def link_wheels(folder: Path, index: Path) -> None:
    """Link each wheel from a folder with the normalised name of its project (PEP 503)."""
    for wheel in folder.glob("*.whl"):
        if match := _WHEEL.fullmatch(wheel.name):
            project = index / re.sub(r"[-_.]+", "-", match["name"]).lower()
            project.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                (project / wheel.name).symlink_to(wheel)
