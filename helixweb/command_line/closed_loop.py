"""Ask an endpoint with so many requests at once: each stream begins again when it has ended."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from helixweb.client import ClientError
from helixweb.command_line.openai_stream import TIMEOUT, Answer, Endpoint, ask

PERCENTILES = (50, 95, 99)
_MOST_KINDS = 10


@dataclass(slots=True, kw_only=True)
class Measured:
    """What a run saw; `failures` by what the endpoint said."""

    streams: int
    finished: list[Answer] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    wall_s: float = 0.0

    def summary(self) -> dict[str, Any]:
        """As `--json` prints it."""
        tokens = sum(one.output_tokens for one in self.finished)
        return {
            "streams": self.streams,
            "requests": len(self.finished) + self.failures.total(),
            "failed": self.failures.total(),
            "failures": dict(self.failures.most_common(_MOST_KINDS)),
            "wall_s": self.wall_s,
            "output_tokens": tokens,
            "output_tokens_per_s": tokens / self.wall_s if self.wall_s else None,
            "requests_per_s": len(self.finished) / self.wall_s if self.wall_s else None,
            "ttft_s": percentiles([one.ttft_s for one in self.finished]),
            "tpot_s": percentiles([one.tpot_s for one in self.finished]),
            "e2e_s": percentiles([one.e2e_s for one in self.finished]),
        }


def percentiles(values: Sequence[float | None]) -> dict[str, float | None]:
    """By nearest rank, so that each is a value that was measured; None does not count."""
    ordered = sorted(value for value in values if value is not None)
    return {
        f"p{share}": ordered[max(0, -(-share * len(ordered) // 100) - 1)] if ordered else None
        for share in PERCENTILES
    }


def run_closed_loop(
    endpoint: Endpoint,
    questions: Iterator[str],
    measured: Measured,
    *,
    max_tokens: int,
    seconds: float | None,
    tell: Callable[[Measured], None],
    transport: httpx.BaseTransport | None,
) -> None:
    """Add to `measured` until `questions` end, or for so many `seconds`; `tell` is called after
    each answer. If it is interrupted, what was measured until then is there."""
    begin, lock = time.monotonic(), threading.Lock()
    limits = httpx.Limits(max_connections=measured.streams)
    http = httpx.Client(timeout=TIMEOUT, transport=transport, limits=limits)

    def next_question() -> str | None:
        is_over = seconds is not None and time.monotonic() >= begin + seconds
        with lock:
            return None if is_over else next(questions, None)

    def one_stream() -> None:
        while (question := next_question()) is not None:
            messages = [{"role": "user", "content": question}]
            try:
                answer = ask(http, endpoint, messages, max_tokens=max_tokens)
                if answer.ttft_s is None:
                    raise ClientError("an answer without any text")
            except ClientError as error:
                failure, answer = str(error) or type(error).__name__, None
            with lock:
                if answer is None:
                    measured.failures[failure] += 1
                else:
                    measured.finished.append(answer)
                measured.wall_s = time.monotonic() - begin
                tell(measured)

    # Daemons: when Ctrl-C ends the command, none is waited for.
    threads = [threading.Thread(target=one_stream, daemon=True) for _ in range(measured.streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    http.close()
