"""What the agent and its stage log, told to helixweb within bounds.

The files on the machine stay the whole log. What comes faster than it may be told is left out, the
oldest lines first, and a line says how many were.
"""

import asyncio
import logging
import re
import time
from collections import deque
from collections.abc import Callable

from runtime.protocol.log_levels import LogLevel, LogSource
from runtime.protocol.node_log import (
    MAX_LINE_CHARS,
    MAX_LINES,
    LogBatch,
    LogLine,
)
from runtime.protocol.secrets_out import without_secrets
from runtime.web_client import ServerRefused, WebClient, WebError

TELL_EVERY_S = 3.0
KEPT_LINES = 500

_LEVELS = {
    "DEBUG": LogLevel.DEBUG,
    "INFO": LogLevel.INFO,
    "WARNING": LogLevel.WARNING,
    "ERROR": LogLevel.ERROR,
    "CRITICAL": LogLevel.ERROR,
}
# As the stage begins its lines (runtime/engine/main.py).
_STAGE_LINE = re.compile(rf"^\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d,\d{{3}} ({'|'.join(_LEVELS)}) (.*)$")
# As vLLM and our engine begin theirs; the date follows or comes before.
_INSTANCE_LEVEL = re.compile(rf"^.{{0,60}}?\b({'|'.join(_LEVELS)})\b ")


class NodeLog:
    """Owns the log lines that the site does not have yet; the agent adds and sends them.

    The lines that were not told yet, `kept_lines` at most. Any thread may add some.
    """

    def __init__(
        self, *, clock: Callable[[], float] = time.time, kept_lines: int = KEPT_LINES
    ) -> None:
        self._clock = clock
        self._lines: deque[LogLine] = deque()
        self._kept_lines = kept_lines
        self._left_out = 0
        self._batch: LogBatch | None = None
        self._stage_level = LogLevel.INFO

    def add(self, source: LogSource, level: LogLevel, text: str) -> None:
        """A line; what is empty is no line."""
        shown = without_secrets(text.replace("\0", "").rstrip())
        if not shown:
            return
        if len(shown) > MAX_LINE_CHARS:
            shown = f"{shown[: MAX_LINE_CHARS - 1]}…"
        self._lines.append(
            LogLine(at_s=max(0.0, self._clock()), source=source, level=level, text=shown)
        )
        while len(self._lines) > self._kept_lines:
            self._lines.popleft()
            self._left_out += 1

    def add_stage_line(self, line: str) -> None:
        """A line of the stage's stderr; without a level of its own it has that of the last."""
        if found := _STAGE_LINE.match(line):
            self._stage_level = _LEVELS[found[1]]
            line = found[2]
        elif line.startswith("Traceback "):
            self._stage_level = LogLevel.ERROR
        self.add(LogSource.STAGE, self._stage_level, line)

    def add_instance_line(self, name: str, line: str) -> None:
        """A line of the log of a whole-model instance."""
        found = _INSTANCE_LEVEL.search(line)
        self.add(LogSource.AGENT, _LEVELS[found[1]] if found else LogLevel.INFO, f"{name}: {line}")

    def next_batch(self) -> LogBatch | None:
        """The oldest lines; the same ones until they are `told` or `given_up`."""
        if self._batch is None and self._lines:
            told = MAX_LINES
            lines: list[LogLine] = []
            if self._left_out:
                lines.append(
                    LogLine(
                        at_s=self._lines[0].at_s,
                        source=LogSource.AGENT,
                        level=LogLevel.WARNING,
                        text=f"{self._left_out} lines were left out here; the log on the machine "
                        "has them",
                    )
                )
                told -= 1
                self._left_out = 0
            lines += [self._lines.popleft() for _ in range(min(told, len(self._lines)))]
            self._batch = LogBatch(lines=tuple(lines))
        return self._batch

    def told(self) -> None:
        """helixweb has the batch."""
        self._batch = None

    def given_up(self) -> None:
        """helixweb will never take the batch; its lines count as left out."""
        if self._batch is not None:
            self._left_out += len(self._batch.lines)
        self._batch = None


class NodeLogHandler(logging.Handler):
    """Logging handler of the agent's process.

    Gives what this process logs to `log`, a line of text each.
    """

    def __init__(self, log: NodeLog) -> None:
        super().__init__()
        self._log = log
        self.setFormatter(logging.Formatter("%(name)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            lines = self.format(record).splitlines()
        except Exception:  # noqa: BLE001 - as logging's own handlers: never ends the program
            self.handleError(record)
            return
        for line in lines:
            self._log.add(LogSource.AGENT, _LEVELS.get(record.levelname, LogLevel.INFO), line)


async def tell_log(web: WebClient, log: NodeLog, *, every_s: float = TELL_EVERY_S) -> None:
    """Forever: a batch at most every `every_s`; while helixweb is away the last lines wait.

    That it is away, or that the node was removed, shows in the heartbeats.
    """
    while True:
        await asyncio.sleep(every_s)
        batch = log.next_batch()
        if batch is None:
            continue
        try:
            await web.log(batch)
        except ServerRefused as error:
            if error.is_final and not error.is_unknown:
                log.given_up()
        except WebError:
            continue
        else:
            log.told()
