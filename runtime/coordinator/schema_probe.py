"""A program of its own: reads a JSON schema from stdin, writes what is wrong with it, or nothing.

The library that follows schemas takes minutes for some and overflows its stack with others. Here
that ends nobody but the client who sent one: the process is killed, and so tells that a stage must
not be given this schema.
"""

import signal
import sys
import threading

from llguidance import LLMatcher

_CPU_S = 1.0  # a stage needs about as long, and meanwhile runs nobody else's step
_STACK_BYTES = 2 * 2**20  # a quarter of a stage's


def main() -> None:
    schema = sys.stdin.read()
    signal.setitimer(signal.ITIMER_PROF, _CPU_S)
    threading.stack_size(_STACK_BYTES)
    looking = threading.Thread(target=lambda: sys.stdout.write(_complaint(schema)))
    looking.start()
    looking.join()


def _complaint(schema: str) -> str:
    try:
        return LLMatcher.validate_grammar(LLMatcher.grammar_from_json_schema(schema))
    except ValueError as error:
        return str(error)


if __name__ == "__main__":
    main()
