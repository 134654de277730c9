"""`python -m benchmarks.serving.shared_port`: what it costs that stages share a port with clients.

A message of a few tokens goes from a stage to a coordinator and the next after it has come, in
turns by a port of its own and by the shared one, over loopback. Prints microseconds a message,
medians and their ratio.
"""

import argparse
import asyncio
import socket
import statistics
import time

from starlette.applications import Starlette

from runtime.coordinator.shared_port import private_socket, shared_with
from runtime.http_process import HttpServer
from runtime.link_measuring import LinkAnswers
from runtime.protocol.control import PeerAddress
from runtime.protocol.data import Kind, Message
from runtime.transport.zmq_sockets import KeyPair
from runtime.transport.zmq_transport import AsyncZmqTransport

_MESSAGES = 500


class Pair:
    """A coordinator that listens at `bind` and a stage that dials `dialled`."""

    def __init__(self, *, bind: str, dialled: str | None = None) -> None:
        keys, own = KeyPair.generate(), KeyPair.generate()
        self.coordinator = AsyncZmqTransport(name="coordinator", bind=bind, keys=keys)
        self.stage = AsyncZmqTransport(name="stage", bind="tcp://127.0.0.1:0", keys=own)
        self.coordinator.set_peers([_peer("stage", self.stage.endpoint, own)])
        self.stage.set_peers([_peer("coordinator", dialled or self.coordinator.endpoint, keys)])

    async def message_s(self) -> float:
        """Of each message, on average."""
        began_s = time.perf_counter()
        for number in range(_MESSAGES):
            self.stage.send("coordinator", Message(kind=Kind.LEAVING, generation=number))
            await self.coordinator.receive()
        return (time.perf_counter() - began_s) / _MESSAGES

    def close(self) -> None:
        self.stage.close()
        self.coordinator.close()


def _peer(name: str, endpoint: str, keys: KeyPair) -> PeerAddress:
    return PeerAddress(name=name, endpoint=endpoint, public_key=keys.public_key)


async def _measure(rounds: int) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with private_socket() as inner:
        server = HttpServer(
            Starlette(), protocol=shared_with(inner, LinkAnswers(may_measure=lambda: False))
        )
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        dialled = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        own = Pair(bind="tcp://127.0.0.1:0")
        shared = Pair(bind=inner.zmq_endpoint, dialled=dialled)
        took: dict[str, list[float]] = {"own port": [], "shared port": []}
        for _ in range(rounds + 1):
            took["own port"].append(await own.message_s())
            took["shared port"].append(await shared.message_s())
        own.close()
        shared.close()
        server.should_exit = True
        await serving
    middle = {name: statistics.median(each[1:]) for name, each in took.items()}
    for name, each_s in middle.items():
        print(f"{name:12} {1e6 * each_s:6.0f} us a message")
    print(f"{'ratio':12} {middle['shared port'] / middle['own port']:6.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    asyncio.run(_measure(parser.parse_args().rounds))
