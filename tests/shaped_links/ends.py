"""Two `endpoint` processes at the ends of a shaped link, each with the other's address and key."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from runtime.transport.zmq_sockets import KeyPair
from tests.shaped_links.network import Namespaces, Side

_SIDES: tuple[Side, Side] = ("a", "b")
_PORT = 7799


class End:
    """One endpoint process, driven over its pipes."""

    def __init__(self, link: Namespaces, side: Side, process: "subprocess.Popen[str]") -> None:
        self.side = side
        self.address = link.address(side)
        self._process = process

    def ask(self, order: object) -> Any:
        self.tell(order)
        return self.answer()

    def tell(self, order: object) -> None:
        if self._process.stdin is None:
            raise RuntimeError("an endpoint has no stdin")
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        if self._process.stdout is None:
            raise RuntimeError("an endpoint has no stdout")
        return json.loads(self._process.stdout.readline())


@contextmanager
def joined_ends(
    link: Namespaces, *, rule: str = "scheduled", security: str = "curve"
) -> Iterator[tuple[End, End]]:
    """The sending end "a" and the receiving end "b"; by the words of LinkRule and DataSecurity."""
    with ExitStack() as closing:
        ends = _start(link, "a", closing), _start(link, "b", closing)
        keys = {end.side: KeyPair.generate() for end in ends}
        endpoints = {
            end.side: end.ask(
                {
                    "secret_key": keys[end.side].secret_key,
                    "bind": f"tcp://{end.address}:{_PORT}",
                    "rule": rule,
                    "security": security,
                }
            )["endpoint"]
            for end in ends
        }
        for end, other in zip(ends, reversed(_SIDES), strict=True):
            end.ask({"peer": {"endpoint": endpoints[other], "public_key": keys[other].public_key}})
        yield ends


def _start(link: Namespaces, side: Side, closing: ExitStack) -> End:
    command = [sys.executable, "-m", "tests.shaped_links.endpoint", side]
    process = closing.enter_context(link.popen(side, command))
    closing.callback(process.terminate)
    return End(link, side, process)
