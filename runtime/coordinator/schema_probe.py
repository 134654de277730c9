"""A program of its own: reads a JSON schema from stdin, writes what is wrong with it, or nothing.

It does what a stage would do: builds the matcher, then walks through one answer and computes the
mask of each of its first bytes. The library that follows schemas takes minutes and gigabytes for
some and overflows its stack with others. Here that ends only the request with the schema: the
process is killed, and so reports that a stage must not be given this schema.
"""

import resource
import signal
import sys
import threading

from llguidance import LLTokenizer

from runtime.protocol.grammars import matcher_of

_CPU_S = 1.0  # a stage needs about as long, in a thread beside its steps
_MEMORY_BYTES = 512 * 2**20  # of addresses; a tenth is the interpreter's
_STACK_BYTES = 2 * 2**20  # a quarter of a stage's
_STEPS = 500
# What leads into the schema before what leads out of it again.
_PREFERRED = b'{["'
_LAST = b"]}"


def main() -> None:
    schema = sys.stdin.read()
    signal.setitimer(signal.ITIMER_PROF, _CPU_S)
    if sys.platform == "linux":  # elsewhere the limit does not hold
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    threading.stack_size(_STACK_BYTES)
    trying = threading.Thread(target=lambda: sys.stdout.write(_complaint(schema)))
    trying.start()
    trying.join()


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
