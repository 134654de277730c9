"""A TCP relay between one process and another that can be cut like a cable, one way or both.

While a direction is cut nothing passes it and nobody is told: connections stay open, new ones are
taken in, and bytes wait in the sender's kernel, as behind a switch that drops every packet.
"""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any, TypeVar

_CHUNK_BYTES = 1 << 16
Result = TypeVar("Result")


class Way(Enum):
    """Which direction of a cable is cut."""

    THERE = "there"  # from whoever dials to whoever listens
    BACK = "back"


BOTH_WAYS = frozenset(Way)


class Cable:
    """Listens on `port` of loopback and passes bytes on to one of `targets` and back.

    Each connection goes to the next target. One that refuses is removed, unless it is the last,
    which may come back.
    """

    def __init__(self, *targets: int) -> None:
        self.targets = list(targets)
        self._open = {way: asyncio.Event() for way in Way}
        self.port = 0

    async def listen(self) -> asyncio.Server:
        for event in self._open.values():
            event.set()
        server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    def cut(self, ways: frozenset[Way]) -> None:
        """Called in the loop that relays."""
        for way in ways:
            self._open[way].clear()

    def mend(self) -> None:
        """Called in the loop that relays."""
        for event in self._open.values():
            event.set()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._open[Way.THERE].wait()
            await self._open[Way.BACK].wait()
            far = await self._dial()
            if far is None:
                return  # nobody listens there: the dialler sees its connection end
            far_reader, far_writer = far
            passing = [
                asyncio.ensure_future(self._pass(reader, far_writer, Way.THERE)),
                asyncio.ensure_future(self._pass(far_reader, writer, Way.BACK)),
            ]
            try:
                await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in passing:
                    task.cancel()
                await asyncio.gather(*passing, return_exceptions=True)
                far_writer.close()
        finally:
            writer.close()

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for _ in self.targets[:]:
            port = self.targets.pop(0)
            self.targets.append(port)
            try:
                return await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                if len(self.targets) > 1 and port in self.targets:
                    self.targets.remove(port)
        return None

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way
    ) -> None:
        """Until one end closes; a reset counts as an end."""
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(_CHUNK_BYTES):
                await self._open[way].wait()
                writer.write(data)
                await writer.drain()


class Cabling:
    """All cables of a cluster, relayed by one thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cables")
        self._servers: list[asyncio.Server] = []
        self._cables: dict[tuple[str, str], Cable] = {}

    def lay(self, dialler: str, listener: str, *targets: int) -> int:
        """The port on which `dialler` reaches `listener`, which listens on these."""
        cable = Cable(*targets)
        self._cables[dialler, listener] = cable
        self._servers.append(self._call(cable.listen()))
        return cable.port

    def cut(self, dialler: str, listener: str, ways: frozenset[Way] = BOTH_WAYS) -> None:
        cable = self._cables[dialler, listener]
        self._loop.call_soon_threadsafe(cable.cut, ways)

    def listening(self, dialler: str, listener: str) -> int:
        """The ports that have not been dropped."""
        return len(self._cables[dialler, listener].targets)

    def mend_all(self) -> None:
        for cable in self._cables.values():
            self._loop.call_soon_threadsafe(cable.mend)

    @contextmanager
    def relaying(self) -> Iterator["Cabling"]:
        self._thread.start()
        try:
            yield self
        finally:
            self._call(self._stop())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _stop(self) -> None:
        for server in self._servers:
            server.close()
        own = asyncio.current_task()
        rest = [task for task in asyncio.all_tasks() if task is not own]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    def _call(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)
