"""Shows a search while it runs, and ends it on Ctrl-C with the best plan so far."""

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TextIO

from planner.domain.plan import Incumbent
from planner.placers.base import Progress

STANDARD_ERROR = 2


FORECAST = "forecast"


class Interrupt:
    """A cancel token that Ctrl-C or SIGTERM sets."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def is_cancelled(self) -> bool:
        return self._event.is_set()

    @contextmanager
    def listening(self) -> Iterator[None]:
        def on_signal(number: int, _: FrameType | None) -> None:
            if not self._event.is_set():
                line = f"{signal.Signals(number).name}: stopping; the best plan so far is kept\n"
                # Not `print`: the signal may come while a line of progress is being printed.
                os.write(STANDARD_ERROR, line.encode())
            self._event.set()

        previous = {
            number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


class LogProgress:
    """A line for each better placement or bound; `goal` names its objective's value.

    On a terminal, `is_live`, one line that is written over.
    """

    def __init__(self, stream: TextIO, *, goal: str = FORECAST, is_live: bool = False) -> None:
        self._stream = stream
        self._goal = goal
        self._frame = ("\r\x1b[K", "") if is_live else ("", "\n")

    def __call__(self, incumbent: Incumbent, /) -> None:
        before, end = self._frame
        line = f"{before}{_line(incumbent, goal=self._goal)}"
        print(line, end=end, file=self._stream, flush=True)


class JsonProgress:
    """One JSON object a line, for programs."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, incumbent: Incumbent, /) -> None:
        record: dict[str, float | str] = {
            "elapsed_s": incumbent.elapsed_s,
            "flow_tokens_per_s": incumbent.flow_tokens_per_s,
            "upper_bound_tokens_per_s": incumbent.upper_bound_tokens_per_s,
            "gap": _gap(incumbent),
            "placer": incumbent.placer,
        }
        if incumbent.objective_value is not None:
            record["objective_value"] = incumbent.objective_value
        if incumbent.objective_bound is not None:
            record["objective_bound"] = incumbent.objective_bound
        print(json.dumps(record), file=self._stream, flush=True)


@contextmanager
def shown_progress(*, asked_for: bool, goal: str = FORECAST) -> Iterator[Progress]:
    """A log on stderr; when asked for, a live line if stdout is a terminal, else JSON on stdout."""
    if not asked_for:
        yield LogProgress(sys.stderr, goal=goal)
    elif sys.stdout.isatty():
        try:
            yield LogProgress(sys.stdout, goal=goal, is_live=True)
        finally:
            print(flush=True)
    else:
        yield JsonProgress(sys.stdout)


def _line(incumbent: Incumbent, *, goal: str) -> str:
    value, most = incumbent.objective_value, incumbent.objective_bound
    reached = "" if value is None else f"{goal} {value:10.4g}  "
    if most is not None:
        reached += f"of at most {most:10.4g}  "
    return (
        f"{incumbent.elapsed_s:8.1f} s  {reached}{incumbent.flow_tokens_per_s:12.1f} tokens/s  "
        f"bound {incumbent.upper_bound_tokens_per_s:12.1f}  gap {_gap(incumbent):7.2%}  "
        f"{incumbent.placer}"
    )


def _gap(incumbent: Incumbent) -> float:
    if incumbent.upper_bound_tokens_per_s <= 0:
        return 0.0
    return 1 - incumbent.flow_tokens_per_s / incumbent.upper_bound_tokens_per_s
