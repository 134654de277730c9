"""Looks at checkpoints on this machine for the site: reads headers, loads no weights."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from runtime.checkpoints.errors import CheckpointError
from runtime.checkpoints.model_facts import read_facts
from runtime.protocol.checkpoint_looks import MOST_LOOKS, LookAnswer, LookOrder

logger = logging.getLogger(__name__)

_LONGEST_ERROR = 2000


def look(order: LookOrder) -> LookAnswer:
    """Read the checkpoint; whatever is wrong with it becomes the answer's error."""
    path = Path(order.path)
    if not path.is_absolute():
        return LookAnswer(id=order.id, error=f"{order.path} is not a whole path")
    try:
        return LookAnswer(id=order.id, facts=read_facts(path))
    except (CheckpointError, OSError, ValueError) as error:
        return LookAnswer(id=order.id, error=str(error)[:_LONGEST_ERROR])
    except Exception as error:  # a file that no check foresaw must not end the agent
        logger.exception("cannot read the checkpoint %s", order.path)
        return LookAnswer(id=order.id, error=f"{order.path} cannot be read: {type(error).__name__}")


class CheckpointLooks:
    """Owns the threads that look at paths for the site; the agent calls it with each desired state.

    Carries out the orders that stand, each once, in threads beside the agent's loop.

    A look at a file system that does not answer holds its thread, and nothing else: threads are
    not those that asyncio resolves names with, and the process ends without them. `on_change` is
    called when there is an answer to report.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._answers: dict[int, LookAnswer] = {}
        self._free = asyncio.Semaphore(MOST_LOOKS)  # threads that may start

    @property
    def answers(self) -> tuple[LookAnswer, ...]:
        """Answers to orders that still stand."""
        return tuple(self._answers.values())

    def want(self, orders: Iterable[LookOrder]) -> None:
        """The orders that stand now; what others found is forgotten."""
        standing = {order.id: order for order in orders}
        for known in (self._answers, self._tasks):
            for number in known.keys() - standing.keys():
                del known[number]
        for number, order in standing.items():
            if number not in self._tasks:
                self._tasks[number] = asyncio.create_task(self._look(order))

    async def _look(self, order: LookOrder) -> None:
        await self._free.acquire()
        if order.id not in self._tasks:  # withdrawn while others held all threads
            self._free.release()
            return
        loop = asyncio.get_running_loop()

        def run() -> None:
            answer = look(order)
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._take, answer)

        threading.Thread(target=run, daemon=True, name="look").start()

    def _take(self, answer: LookAnswer) -> None:
        self._free.release()
        if answer.id in self._tasks:
            self._answers[answer.id] = answer
            self._on_change()
