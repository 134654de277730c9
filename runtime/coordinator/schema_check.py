"""Whether an answer can be kept within a JSON schema, found out before a stage is given it."""

import asyncio
import hashlib
import subprocess
import sys
from collections import OrderedDict
from importlib import util

from runtime.protocol.openai import ApiError

_KNOWN = 256  # schemas whose check is remembered
_AT_ONCE = 2  # checks, each a process
_WITHIN_S = 30.0
_LONGEST_COMPLAINT = 1000  # characters; it may quote a schema of megabytes
_TOO_COMPLEX = (
    "it is too complex: fewer references, combined patterns or alternatives make it simpler"
)


class SchemaCheck:
    """Owns the processes that try JSON schemas; the HTTP endpoints call it.

    Looks at each schema in a process of its own; see `schema_probe`.
    """

    def __init__(self) -> None:
        # by the SHA-256 of a schema, which may have megabytes; oldest use first
        self._complaints: OrderedDict[bytes, str] = OrderedDict()
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def check(self, schema: str, *, param: str) -> None:
        """Raises ApiError: 400 for a schema that cannot be followed, or without the library for
        it; 503 where that could not be found out. `param` asked for it."""
        if util.find_spec("llguidance") is None:
            raise ApiError(
                message=f"{param!r} needs the library llguidance, which is not installed here; "
                "pip install 'helixweb[grammar]' on coordinator and nodes, or let the answer be "
                "free",
                param=param,
                code="unsupported_value",
            )
        digest = hashlib.sha256(schema.encode()).digest()
        if digest not in self._complaints:
            async with self._turns:
                if digest not in self._complaints:  # while others were looked at, this one was
                    self._complaints[digest] = await asyncio.to_thread(_complaint_of, schema)
        self._complaints.move_to_end(digest)
        while len(self._complaints) > _KNOWN:
            self._complaints.popitem(last=False)
        complaint = self._complaints[digest]
        if complaint:
            raise ApiError(
                message=f"{param!r} asks for a schema that cannot be followed: {complaint}",
                param=param,
                code="invalid_value",
            )


def _complaint_of(schema: str) -> str:
    """Empty: it can be followed. Raises ApiError 503."""
    try:
        probe = subprocess.run(
            [sys.executable, "-m", "runtime.coordinator.schema_probe"],
            input=schema.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_WITHIN_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ApiError(
            message=f"the schema could not be looked at within {_WITHIN_S:g} s, as the "
            "coordinator's machine has too much to do; try again",
            code="overloaded",
            retry_after_s=_WITHIN_S,
        ) from error
    told = probe.stdout.decode()[:_LONGEST_COMPLAINT]
    return told or (_TOO_COMPLEX if probe.returncode else "")
