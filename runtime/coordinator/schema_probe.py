"""A program of its own: reads a JSON schema from stdin, writes what is wrong with it and where, or
nothing.

It does what a stage would do: builds the matcher, then walks through one answer and computes the
mask of each of its first bytes. The library that follows schemas takes minutes and gigabytes for
some and overflows its stack with others. Here that ends only the request with the schema: the
process is killed, and so reports that a stage must not be given this schema.
"""

import json
import re
import resource
import signal
import sys
import threading
from typing import Any

from llguidance import LLTokenizer

from runtime.protocol.grammars import matcher_of

_CPU_S = 1.0  # a stage needs about as long, in a thread beside its steps
_MEMORY_BYTES = 512 * 2**20  # of addresses; a tenth is the interpreter's
_STACK_BYTES = 2 * 2**20  # a quarter of a stage's
_STEPS = 500
# What leads into the schema before what leads out of it again.
_PREFERRED = b'{["'
_LAST = b"]}"
# What the library says of keywords that it does not follow, and what to use instead of them.
_ONE_OF = "oneOf constraints are not supported"
_UNKNOWN_KEYS = re.compile(r'Unimplemented keys: \["([^"]*)"')
_ONE_OF_TEXT = (
    "'oneOf' is followed only where no value can fit two of its schemas, as with different types; "
    "use 'anyOf'"
)
_INSTEAD = {
    "not": "list what is allowed with 'enum' or 'anyOf'",
    "if": "use 'anyOf'",
    "else": "use 'anyOf'",
    "propertyNames": "use 'patternProperties'",
    "unevaluatedProperties": "use 'additionalProperties'",
}


def main() -> None:
    schema = sys.stdin.read()
    signal.setitimer(signal.ITIMER_PROF, _CPU_S)
    if sys.platform == "linux":  # elsewhere the limit does not hold
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    threading.stack_size(_STACK_BYTES)
    trying = threading.Thread(target=_write_complaint, args=(schema,))
    trying.start()
    trying.join()


def _write_complaint(schema: str) -> None:
    said = _complaint(schema)
    sys.stdout.write(_in_own_words(said))
    sys.stdout.flush()  # the search for the place may end the process
    if said:
        root = json.loads(schema)
        top = root if isinstance(root, dict) else {}
        common = {name: top[name] for name in ("$defs", "definitions") if name in top}
        if place := _innermost(root, "#", said, common):
            sys.stdout.write(f" (at {place})")


def _innermost(part: Any, place: str, said: str, common: dict[str, Any]) -> str:
    """The pointer to the innermost schema in `part` with that complaint; empty if there is none."""
    if not isinstance(part, dict | list):
        return ""
    for name, within in part.items() if isinstance(part, dict) else enumerate(part):
        if found := _innermost(within, f"{place}/{name}", said, common):
            return found
    is_it = isinstance(part, dict) and _complaint(json.dumps(common | part)) == said
    return place if is_it else ""


def _in_own_words(said: str) -> str:
    if said.startswith(_ONE_OF):
        return _ONE_OF_TEXT
    if key := _UNKNOWN_KEYS.match(said):
        return f"{key[1]!r} is not supported; {_INSTEAD.get(key[1], 'leave it out')}"
    return said


def _complaint(schema: str) -> str:
    try:
        matcher = matcher_of(schema, LLTokenizer("byte"))
        for _ in range(_STEPS):
            mask = int.from_bytes(matcher.compute_bitmask(), "little")
            if matcher.is_error():
                raise ValueError(_readable(matcher.get_error()))
            if matcher.is_stopped():
                break
            allowed = [byte for byte in range(256) if mask >> byte & 1]
            if not allowed:  # the end alone may follow
                break
            matcher.consume_token(min(allowed, key=_preference))
    except ValueError as error:
        return " ".join(str(error).split())
    return ""


def _readable(error: str) -> str:
    if error.startswith("NoExtension"):
        return "it allows no answer: its references lead in a circle, or what it asks contradicts"
    return f"it is too complex: {error}"


def _preference(byte: int) -> tuple[int, int]:
    if byte in _PREFERRED:
        return 0, _PREFERRED.index(byte)
    if byte in _LAST:
        return 2, byte
    return 1, -byte  # letters before commas before blanks


if __name__ == "__main__":
    main()
