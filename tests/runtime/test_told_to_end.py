"""How a process that serves HTTP is told to end, and when it does."""

import asyncio
import signal

import pytest

from runtime.http_process import Ending, told_to_end

FOREVER_S = 3600.0


class Requests:
    """Some that are here, until the test says otherwise."""

    def __init__(self) -> None:
        self.here = 2
        self.closed = asyncio.Event()
        self.signals: asyncio.Queue[int] = asyncio.Queue()

    def end(self, *, grace_s: float = FOREVER_S) -> asyncio.Task[None]:
        async def cut() -> None: ...

        ending = Ending(requests=lambda: self.here, close=self.closed.set, cut=cut, grace_s=grace_s)
        return asyncio.create_task(told_to_end(self.signals, ending))


def test_after_sigterm_nobody_new_comes_in_and_requests_end_first() -> None:
    async def test() -> None:
        requests = Requests()
        ending = requests.end()
        requests.signals.put_nowait(signal.SIGTERM)
        await requests.closed.wait()
        await asyncio.sleep(0.2)
        assert not ending.done()
        requests.here = 0
        await ending

    asyncio.run(test())


def test_a_second_signal_and_the_grace_end_the_wait() -> None:
    async def test() -> None:
        for second, grace_s in ((signal.SIGTERM, FOREVER_S), (None, 0.05)):
            requests = Requests()
            ending = requests.end(grace_s=grace_s)
            requests.signals.put_nowait(signal.SIGTERM)
            await requests.closed.wait()
            if second is not None:
                requests.signals.put_nowait(second)
            await ending
            assert requests.here == 2

    asyncio.run(test())


@pytest.mark.parametrize("here", [0, 2])
def test_sigint_waits_for_nobody(here: int) -> None:
    async def test() -> None:
        requests = Requests()
        requests.here = here
        ending = requests.end()
        requests.signals.put_nowait(signal.SIGINT)
        await ending
        assert not requests.closed.is_set()

    asyncio.run(test())
