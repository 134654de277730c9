"""A command's environment: streams, variables and, in tests, a transport to the server."""

import codecs
import contextlib
import io
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    import httpx

_AS_JSON = "helixweb.as-json"


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Characters that the encoding lacks as JSON escapes, so that --json stays valid."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    units = (lacking[at : at + 2].hex() for at in range(0, len(lacking), 2))
    return "".join(f"\\u{unit}" for unit in units), error.end


codecs.register_error(_AS_JSON, _escaped)


def _writable(stream: TextIO | None) -> TextIO:
    """The stream; a closed one (None, by a shell's `>&-`) discards everything."""
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors=_AS_JSON)
    return stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """`arguments.surroundings` of every command, the first argument of one that needs no server."""

    out: TextIO = field(default_factory=lambda: _writable(sys.stdout))
    err: TextIO = field(default_factory=lambda: _writable(sys.stderr))
    input: TextIO = field(default_factory=lambda: sys.stdin or io.StringIO())
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    sleep: Callable[[float], None] = time.sleep
    transport: "httpx.BaseTransport | None" = None

    def say(self, text: str = "") -> None:
        """One line to stdout."""
        self.out.write(f"{text}\n")

    def say_json(self, document: object) -> None:
        """Print a JSON document for scripts."""
        self.say(json.dumps(document))

    def warn(self, text: str) -> None:
        """One line to stderr, with our name before it."""
        self.tell(f"helixweb: {text}")

    def tell(self, text: str) -> None:
        """One line to stderr, as it is; lost where that is closed, or on a full disk."""
        with contextlib.suppress(OSError):
            self.err.write(f"{text}\n")
            self.err.flush()

    def redraw(self, text: str) -> None:
        """Draw a line of at most 79 columns on stderr over the last one, if it is a terminal."""
        if self.err.isatty():
            self.err.write(f"\r{text:<79}")
            self.err.flush()

    @property
    def is_terminal(self) -> bool:
        """True if stdout is a terminal."""
        return self.out.isatty()

    @property
    def can_draw(self) -> bool:
        """True if stdout is a terminal that can move its cursor."""
        return self.is_terminal and self.environ.get("TERM", "ansi") not in ("", "dumb")
