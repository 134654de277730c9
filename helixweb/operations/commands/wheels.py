"""`helixweb wheels`: everything that machines without a way to the internet install from."""

import argparse
import functools
import http.server
import re
import subprocess
import sys
import urllib.parse
from html import escape
from pathlib import Path

from helixweb.command_line import exit_codes
from helixweb.command_line.registry import Subparsers
from helixweb.operations.commands.site import Say
from helixweb.operations.listening import CannotListen, check_free, port
from helixweb.operations.prepare import Fault
from helixweb.operations.versions import product_version

_WHEEL = re.compile(r"(?P<name>[^-]+)-[^-]+(-\d[^-]*)?-[^-]+-[^-]+-[^-]+\.whl")


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser = subparsers.add_parser(
        "wheels",
        help="gather and serve packages for machines without internet",
        description="`gather` fetches this version and all it needs into a folder, on a machine "
        "with internet; `serve` is where machines without it install from: "
        "pip install --index-url http://THIS:8200/simple/ 'helixweb[agent]'.",
    )
    actions = parser.add_subparsers(dest="action", required=True)
    gather = actions.add_parser("gather", help="fetch packages into a folder")
    gather.add_argument("folder", type=Path)
    gather.add_argument(
        "--extras", default="agent", help="which extras, e.g. agent,postgres (%(default)s)"
    )
    gather.add_argument(
        "--from",
        dest="source",
        default="",
        help="a checkout or a wheel of HelixWeb (default: this version from the index)",
    )
    gather.add_argument("--constraint", type=Path, help="versions to take, e.g. constraints.txt")
    gather.add_argument(
        "--pip", action="append", default=[], help="an option of pip, e.g. --pip=--index-url=URL"
    )
    serve = actions.add_parser("serve", help="let machines install from a folder")
    serve.add_argument("folder", type=Path)
    serve.add_argument("--host", default="127.0.0.1", help="address (%(default)s)")
    serve.add_argument("--port", type=port, default=8200, help="port (%(default)s)")
    return parser


def run(arguments: argparse.Namespace) -> int:
    around = arguments.surroundings
    try:
        if arguments.action == "gather":
            _gather(arguments)
            count = len(list(arguments.folder.glob("*.whl")))
            around.say(f"{count} wheels in {arguments.folder}")
        else:
            _serve(arguments, around.say)
    except (CannotListen, Fault) as fault:
        around.warn(str(fault))
        return exit_codes.FAILED
    return exit_codes.OK


def _gather(arguments: argparse.Namespace) -> None:
    """Raises Fault."""
    named = f"helixweb[{arguments.extras}]" if arguments.extras else "helixweb"
    if arguments.source:
        what = f"{named} @ {Path(arguments.source).resolve().as_uri()}"
    else:
        what = f"{named}=={product_version()}"
    pinned = ["--constraint", str(arguments.constraint)] if arguments.constraint else []
    command = [sys.executable, "-m", "pip", "wheel", "--wheel-dir", str(arguments.folder)]
    done = subprocess.run([*command, *pinned, *arguments.pip, what], check=False)
    if done.returncode != 0:
        raise Fault("pip could not gather all, see above")


def _serve(arguments: argparse.Namespace, say: Say) -> None:
    """Until Ctrl-C. Raises Fault, CannotListen."""
    if not any(arguments.folder.glob("*.whl")):
        raise Fault(f"there are no wheels in {arguments.folder}; fill it: helixweb wheels gather")
    check_free(arguments.host, arguments.port, option="--port")
    with make_server(arguments.folder, arguments.host, arguments.port) as server:
        host, number = server.server_address[:2]
        say(f"pip install --index-url http://{host!s}:{number}/simple/ 'helixweb[agent]'")
        say("(elsewhere add --trusted-host with this machine's address; Ctrl-C ends it)")
        server.serve_forever()


def make_server(folder: Path, host: str, port: int) -> http.server.ThreadingHTTPServer:
    """A package index (PEP 503) of the wheels of a folder, and of nothing else in it."""
    handler = functools.partial(IndexHandler, folder)
    return http.server.ThreadingHTTPServer((host, port), handler)


class IndexHandler(http.server.BaseHTTPRequestHandler):
    """`/simple/`, `/simple/NAME/` and the wheels themselves, read only."""

    def __init__(self, folder: Path, *arguments: object) -> None:
        self._folder = folder
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """Answer; names are looked up in the list of the folder, so none leads out of it."""
        wheels = by_project(self._folder)
        parts = [urllib.parse.unquote(part) for part in self.path.split("?")[0].split("/") if part]
        files = {path.name: path for paths in wheels.values() for path in paths}
        if parts == ["simple"]:
            self._page([(name, f"{name}/") for name in sorted(wheels)])
        elif len(parts) == 2 and parts[0] == "simple" and parts[1] in wheels:
            names = [path.name for path in wheels[parts[1]]]
            self._page([(name, f"/wheels/{urllib.parse.quote(name)}") for name in names])
        elif len(parts) == 2 and parts[0] == "wheels" and parts[1] in files:
            self._file(files[parts[1]])
        else:
            self.send_error(404)

    def _page(self, links: list[tuple[str, str]]) -> None:
        body = "\n".join(f'<a href="{escape(to)}">{escape(text)}</a><br>' for text, to in links)
        content = f"<!DOCTYPE html><html><body>\n{body}\n</body></html>".encode()
        self._head("text/html; charset=utf-8", len(content))
        self.wfile.write(content)

    def _file(self, path: Path) -> None:
        with path.open("rb") as file:
            self._head("application/octet-stream", path.stat().st_size)
            while piece := file.read(1 << 20):
                self.wfile.write(piece)

    def _head(self, kind: str, length: int) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(length))
        self.end_headers()


def by_project(folder: Path) -> dict[str, list[Path]]:
    """Wheels by the normalised name of their project (PEP 503)."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("*.whl")):
        if match := _WHEEL.fullmatch(path.name):
            name = re.sub(r"[-_.]+", "-", match["name"]).lower()
            found.setdefault(name, []).append(path)
    return found
