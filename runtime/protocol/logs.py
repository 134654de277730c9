"""How every process writes its log: lines of text, or with HELIXWEB_LOG=json an object a line.

Either way without secrets. The id of the request that is being answered goes from process to
process as X-Request-ID and stands in every line that is written for it.
"""

import json
import logging
import os
import re
import sys
import uuid
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from runtime.protocol.complaints import StartRefused
from runtime.protocol.secrets_out import without_secrets

VARIABLE = "HELIXWEB_LOG"
HEADER = "X-Request-ID"
NO_REQUEST = "-"
# What callers may add by `extra`, beside the id.
EXTRAS = ("request", "node", "generation", "outcome", "output_tokens", "ttft_s", "e2e_s", "task")
REQUEST_ID: ContextVar[str] = ContextVar("helix_request_id", default=NO_REQUEST)
_LINE_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_ACCEPTED = re.compile(r"[A-Za-z0-9._:-]{1,64}")


class UnknownFormat(StartRefused):
    """HELIXWEB_LOG says something else; the message says what it may."""


def wants_json() -> bool:
    """Raises UnknownFormat."""
    said = os.environ.get(VARIABLE, "text").strip().lower()
    if said not in ("json", "text", ""):
        raise UnknownFormat(f"{VARIABLE} is {said!r}; use json or text")
    return said == "json"


def begin_logging(process: str, *, level: str | int = logging.INFO) -> None:
    """Of a process of ours: to stderr. Raises UnknownFormat."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(process=process) if wants_json() else TextLines(_LINE_FORMAT))
    logging.basicConfig(level=level, handlers=[handler])
    if wants_json():  # a line for every request, which as text nobody would read
        logging.getLogger("helix.requests").setLevel(logging.DEBUG)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # else a line for each heartbeat


class TextLines(logging.Formatter):
    """As the format says, without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(super().format(record))


class JsonLines(logging.Formatter):
    """One object a line, of ASCII alone, so that no text can begin a line of its own."""

    def __init__(self, *, process: str) -> None:
        super().__init__()
        self.process = process

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, tz=UTC)
        told: dict[str, Any] = {
            "at": at.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "process": self.process,
            "pid": record.process,
            "logger": record.name,
            "message": without_secrets(record.getMessage()),
        }
        request_id = getattr(record, "request_id", NO_REQUEST)
        if request_id == NO_REQUEST:
            request_id = REQUEST_ID.get()
        if request_id != NO_REQUEST:
            told["request_id"] = request_id
        told |= {name: getattr(record, name) for name in EXTRAS if hasattr(record, name)}
        if record.exc_info:
            told["exception"] = without_secrets(self.formatException(record.exc_info))
        return json.dumps(told, default=str)


def request_id_or_new(brought: str | None) -> str:
    """What a client sends is taken if it can do no harm where it is written."""
    return brought if brought and _ACCEPTED.fullmatch(brought) else uuid.uuid4().hex
