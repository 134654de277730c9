"""Measures the link between two processes over one TCP connection to a data port.

A node that runs no stage listens at its data port with `LinkListener`; a coordinator that has one
port for all hands such connections to its `LinkAnswers`. The process that measures connects, proves
that it knows the cluster's key, fills the link for a moment, and is sent as much back. The
estimator is that of stages (`runtime.transport.link_scheduler`). A machine takes part in one
measurement at a time; one that is asked meanwhile says that it is busy.

    dialler   HLM1                     listener  16 bytes of challenge
    dialler   32 bytes, HMAC-SHA256    listener  G (go) or B (busy)
    dialler   chunks, then an end      listener  acks
    listener  chunks, then an end      dialler   acks
    listener  its result as one line of JSON

Each frame has its length before it (32 bits, network order); an end is a frame of no bytes.
"""

import asyncio
import hmac
import logging
import secrets
import struct
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from runtime.protocol.data import FrameError, MeasureOrder
from runtime.protocol.endpoints import parse_endpoint
from runtime.protocol.link_frames import (
    Ack,
    Chunk,
    Probe,
    ack_of,
    decode_link_frame,
    encode_link_frame,
)
from runtime.protocol.ports import machine_turn
from runtime.protocol.reach import MeasuredLink, MeasuredRate
from runtime.tasks import cancel, within
from runtime.transport.kernel_link import look_at, set_pace
from runtime.transport.link_scheduler import LinkOptions, LinkScheduler
from runtime.transport.measuring import Measuring
from runtime.transport.receive_stream import Bytes

logger = logging.getLogger(__name__)

MAGIC = b"HLM1"
# Of one direction. A link of 10 Gb/s is known after less, one of 1 Mb/s has sent 125 kB by then.
ORDER = MeasureOrder(peer="the other side", most_bytes=256 * 10**6, most_s=1.0)
_WITHIN_S = 8.0  # both directions, with what is on its way at the end of each
_GREETED_WITHIN_S = 2.0
_GO, _BUSY = b"G", b"B"
_CHALLENGE_BYTES, _PROOF_BYTES = 16, 32
_LENGTH = struct.Struct("!I")
_MOST_FRAME_BYTES = 2 * LinkOptions().most_chunk_bytes
_CHUNK_BYTES = len(  # the header; smaller frames are probes and ends
    encode_link_frame(Chunk(stream=0, sequence=0, offset=0, payload_bytes=0, sent_us=0))
)
READ_AHEAD_BYTES = 1 << 20
_LOOK_AGAIN_S = 0.05


class _Sent(NamedTuple):
    rate: MeasuredRate
    rtt_s: float


class _Acks:
    """How many have come; `came` is set by each."""

    def __init__(self) -> None:
        self.count = 0
        self.came = asyncio.Event()


class CannotMeasure(Exception):
    """No result, for now; the text says why."""


class LinkAnswers:
    """Answers link measurements of others; its process hands it their connections.

    Takes part in measurements that others begin by a connection to this process.
    """

    def __init__(self, *, may_measure: Callable[[], bool]) -> None:
        """`may_measure`: False while this machine has something better to do."""
        self.key = ""
        self._may_measure = may_measure
        self._answered: set[asyncio.StreamWriter] = set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection, then end it."""
        self._answered.add(writer)
        try:
            async with asyncio.timeout(_WITHIN_S):
                await self._answer(reader, writer)
        except (TimeoutError, OSError, EOFError, FrameError, CannotMeasure) as error:
            logger.debug("a connection that measures ended: %r", error)
        finally:
            self._answered.discard(writer)
            _abort(writer)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_GREETED_WITHIN_S):
            if await reader.readexactly(len(MAGIC)) != MAGIC or not self.key:
                return  # a stage or a coordinator that does not know yet that none runs here
            challenge = secrets.token_bytes(_CHALLENGE_BYTES)
            writer.write(challenge)
            proof = await reader.readexactly(_PROOF_BYTES)
        if not hmac.compare_digest(proof, _proof(self.key, challenge)):
            return
        with _turn(writer, is_answering=True) as is_ours:
            if not is_ours or not self._may_measure():
                writer.write(_BUSY)
                return
            writer.write(_GO)
            await _receive(reader, writer, self._may_measure)
            found = await _send(reader, writer, self._may_measure)
            writer.write(found.rate.model_dump_json().encode() + b"\n")
            await writer.drain()


class LinkListener(LinkAnswers):
    """Owns the data port of a node without a stage; the agent opens and closes it.

    Listens at a data port while its process has no other use for it.
    """

    def __init__(self, *, host: str, port: int, may_measure: Callable[[], bool]) -> None:
        super().__init__(may_measure=may_measure)
        self._host, self._port = host, port
        self._server: asyncio.Server | None = None

    @property
    def is_open(self) -> bool:
        return self._server is not None

    async def open(self) -> None:
        """Raises OSError where the port is taken."""
        if self._server is None:
            self._server = await asyncio.start_server(
                self.accept, self._host, self._port, limit=READ_AHEAD_BYTES
            )

    def close(self) -> None:
        """The port is free when it returns."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for writer in self._answered:
            _abort(writer)


async def measure_link(
    endpoint: str, *, key: str, may_measure: Callable[[], bool] = lambda: True
) -> MeasuredLink:
    """Both directions of the link to the listener at `endpoint`.

    Raises CannotMeasure, also once `may_measure` says False.
    """
    place = parse_endpoint(endpoint)
    try:
        async with asyncio.timeout(_GREETED_WITHIN_S):
            reader, writer = await asyncio.open_connection(
                place.host, place.port, limit=READ_AHEAD_BYTES
            )
    except (TimeoutError, OSError) as error:
        raise CannotMeasure(f"{endpoint} does not answer") from error
    try:
        async with asyncio.timeout(_WITHIN_S):
            return await _measure(reader, writer, endpoint, key, may_measure)
    except (TimeoutError, OSError, EOFError, ValueError) as error:  # frames and lines of any bytes
        raise CannotMeasure(f"{endpoint} takes part in no measurement now") from error
    finally:
        _abort(writer)


async def _measure(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    endpoint: str,
    key: str,
    may_measure: Callable[[], bool],
) -> MeasuredLink:
    with _turn(writer, is_answering=False) as is_ours:
        if not is_ours:
            raise CannotMeasure("this machine takes part in another measurement")
        writer.write(MAGIC)
        writer.write(_proof(key, await reader.readexactly(_CHALLENGE_BYTES)))
        if await reader.readexactly(1) != _GO:
            raise CannotMeasure(f"{endpoint} is busy")
        sent = await _send(reader, writer, may_measure)
        await _receive(reader, writer, may_measure)
        received = MeasuredRate.model_validate_json(await reader.readline())
    return MeasuredLink(rtt_s=sent.rtt_s, sent=sent.rate, received=received)


async def _send(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, may_measure: Callable[[], bool]
) -> _Sent:
    """Fill the link until its rate is known, or as long as `ORDER` allows.

    Ends after the last ack, so that none comes among what the other side sends.
    """
    scheduler = LinkScheduler(LinkOptions())
    connection = writer.get_extra_info("socket")
    began_s = time.monotonic()
    measuring = Measuring(ORDER, scheduler, now_s=began_s)
    sent, acks = 0, _Acks()
    hearing = asyncio.create_task(_hear(reader, scheduler, acks))
    try:
        while not hearing.done():
            if not may_measure():
                raise CannotMeasure("this machine has requests to serve")
            acks.came.clear()
            now_s = time.monotonic()
            has_ended = measuring.has_ended(now_s)
            if has_ended and acks.count == sent:
                break
            measuring.fill(now_s=now_s)
            if scheduler.look_is_due(now_s):
                scheduler.on_look(look_at(connection), now_s=now_s)
                set_pace(connection, scheduler.bulk_pace(now_s))
            probe = None if has_ended else scheduler.probe(now_s=now_s)
            if probe is not None:
                sent += 1
                await _write(writer, encode_link_frame(probe))
            chunk = None if has_ended else scheduler.next(now_s=now_s)
            if chunk is not None:
                sent += 1
                header, piece = encode_link_frame(chunk.header), chunk.piece
                await _write(writer, header, piece.head, piece.part)
                continue
            wait_s = _LOOK_AGAIN_S if has_ended else scheduler.wake_s(now_s=now_s) - now_s
            await within(max(0.0, wait_s), acks.came.wait())
        if hearing.done():
            hearing.result()
    finally:
        await cancel(hearing)
    took_s = time.monotonic() - began_s
    await _write(writer)
    rate = scheduler.rate
    if not rate.bytes_per_s:  # of a slow link too little arrives, of a fast one all at once
        floor = scheduler.counters.filler_bytes_total / took_s
        return _Sent(MeasuredRate(bytes_per_s=floor, is_floor=True), scheduler.rtt_s or took_s)
    measured = MeasuredRate(bytes_per_s=rate.bytes_per_s, is_floor=rate.is_floor)
    return _Sent(measured, scheduler.rtt_s or took_s)


async def _hear(reader: asyncio.StreamReader, scheduler: LinkScheduler, acks: _Acks) -> None:
    """Take acks, forever."""
    while True:
        frame = decode_link_frame(await _read(reader))
        if not isinstance(frame, Ack):
            raise FrameError(f"{type(frame).__name__} instead of an ack")
        scheduler.on_ack(frame, now_s=time.monotonic())
        acks.count += 1
        acks.came.set()


async def _receive(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, may_measure: Callable[[], bool]
) -> None:
    """Acknowledge what the other side fills the link with, until it ends."""
    expected = delivered_bytes = 0
    while data := await _read(reader):
        if not may_measure():
            raise CannotMeasure("this machine has requests to serve")
        is_chunk = len(data) > _CHUNK_BYTES
        frame = decode_link_frame(data[:_CHUNK_BYTES] if is_chunk else data)
        if not isinstance(frame, Chunk | Probe):
            raise FrameError(f"{type(frame).__name__} instead of a chunk")
        expected += is_chunk
        delivered_bytes += len(data)
        ack = ack_of(frame, expected=expected, delivered_bytes=delivered_bytes)
        await _write(writer, encode_link_frame(ack))


async def _read(reader: asyncio.StreamReader) -> bytes:
    """One frame; empty at the end."""
    (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if size > _MOST_FRAME_BYTES:
        raise FrameError(f"a frame of {size} bytes; at most {_MOST_FRAME_BYTES} are sent")
    return await reader.readexactly(size)


async def _write(writer: asyncio.StreamWriter, *parts: Bytes) -> None:
    views = [memoryview(part).cast("B") for part in parts if memoryview(part).nbytes]
    writer.writelines([_LENGTH.pack(sum(view.nbytes for view in views)), *views])
    await writer.drain()


def _proof(key: str, challenge: bytes) -> bytes:
    return hmac.digest(key.encode(), challenge, "sha256")


@contextmanager
def _turn(writer: asyncio.StreamWriter, *, is_answering: bool) -> Generator[bool]:
    """While inside, this machine takes part in no other measurement; False: in one already.

    Between two processes of a machine the one that dials has the turn of both.
    """
    own, other = (writer.get_extra_info(name)[0] for name in ("sockname", "peername"))
    if is_answering and own == other:
        yield True
        return
    with machine_turn() as is_ours:
        yield is_ours


def _abort(writer: asyncio.StreamWriter) -> None:
    """Drop what is not sent yet; `close` would send it."""
    with suppress(RuntimeError):  # the loop is closed
        writer.transport.abort()
