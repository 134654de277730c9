"""Who a stage serves that is measured (`rehearsal`): the stage before it, and the coordinator.

Runs in a process of its own, as two threads of one would wait for each other. Without torch.
"""

import time
from dataclasses import dataclass
from multiprocessing.connection import Connection

from planner.domain.cluster import COORDINATOR
from runtime.engine.backend import ModelShape
from runtime.protocol.control import PeerAddress
from runtime.protocol.data import DTYPE_BYTES, Entry, Flag, Hop, Kind, Message, Route, Sampling
from runtime.transport.base import Transport
from runtime.transport.zmq_sockets import KeyPair
from runtime.transport.zmq_transport import ZmqTransport

MEASURED = "measured"
REQUESTS = 2
GENERATION = 1
_BEFORE = "before"
_LOOPBACK = "tcp://127.0.0.1:0"
_PATIENCE_S = 20.0
_RECEIVERS = 2  # of each token: the coordinator, and the stage where its request goes on


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What is to be played for `rounds` decodes of REQUESTS requests: `shape` is of the stage that
    is measured, a model's last."""

    secret_key: str
    stage: PeerAddress
    shape: ModelShape
    max_context_tokens: int
    rounds: int
    rest_s: float


def play(connection: Connection, scene: Scene) -> None:
    """Say by which names and where we are heard, wait until the stage is there, and say how long
    each round took; the first is the prompts'."""
    keys = KeyPair.from_secret(scene.secret_key)
    transport = ZmqTransport(name=_BEFORE, bind=_LOOPBACK, keys=keys, peers=[scene.stage])
    try:
        # Of both names the last is the one that what we send is said to come from.
        connection.send(
            [
                PeerAddress(name=name, endpoint=transport.endpoint, public_key=keys.public_key)
                for name in (COORDINATOR, _BEFORE)
            ]
        )
        connection.recv()
        rounds_s = []
        for position in range(scene.rounds + 1):
            time.sleep(scene.rest_s)
            rounds_s.append(_round_s(transport, _rows(scene, position)))
        connection.send(rounds_s)
        connection.poll(None)  # until the stage has gone
    finally:
        transport.close()


def _round_s(transport: Transport, rows: Message) -> float:
    """From when rows are sent until their tokens are here."""
    began_s = time.perf_counter()
    transport.send(MEASURED, rows)
    missing = _RECEIVERS
    while missing > 0:
        arrived = transport.receive(timeout_s=_PATIENCE_S)
        if not arrived:
            raise TimeoutError(f"no token for a row after {_PATIENCE_S:g} s")
        missing -= sum(received.message.kind is Kind.SAMPLED for received in arrived)
    return time.perf_counter() - began_s


def _rows(scene: Scene, position: int) -> Message:
    """One row of each request."""
    shape, is_prompt = scene.shape, position == 0
    route = Route(
        hops=(
            Hop(node=_BEFORE, first=0, end=shape.first),
            Hop(node=MEASURED, first=shape.first, end=shape.end),
        ),
        sampling=Sampling(
            temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=scene.max_context_tokens
        ),
        prompt_tokens=1,
    )
    return Message(
        kind=Kind.ROWS,
        generation=GENERATION,
        entries=tuple(
            Entry(
                request=request,
                epoch=0,
                position=position,
                n_tokens=1,
                hop=1,
                flags=Flag.PROMPT_END | (Flag.PREFILL if is_prompt else Flag.NONE),
                route=route if is_prompt else None,
            )
            for request in range(REQUESTS)
        ),
        dtype=shape.dtype,
        payload=bytes(REQUESTS * shape.hidden_size * DTYPE_BYTES[shape.dtype]),
    )
