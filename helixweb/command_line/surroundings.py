"""What a command has around it: streams, environment and, in tests, another way to the server."""

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TextIO

import httpx


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """`arguments.surroundings` of every command."""

    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)
    input: TextIO = field(default_factory=lambda: sys.stdin)
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    sleep: Callable[[float], None] = time.sleep
    transport: httpx.BaseTransport | None = None
    async_transport: httpx.AsyncBaseTransport | None = None

    def say(self, text: str = "") -> None:
        """One line to stdout."""
        self.out.write(f"{text}\n")

    def warn(self, text: str) -> None:
        """One line to stderr."""
        self.err.write(f"helixweb: {text}\n")
        self.err.flush()

    @property
    def is_terminal(self) -> bool:
        """Whether a person looks at stdout."""
        return self.out.isatty()
