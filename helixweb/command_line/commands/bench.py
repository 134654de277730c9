"""`helixweb bench`: what an endpoint delivers under so many requests at once."""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helixweb.client import ClientError
from helixweb.command_line import exit_codes
from helixweb.command_line.command import command
from helixweb.command_line.failures import BadUsage, CommandFailed
from helixweb.command_line.numbers import Count, Seconds
from helixweb.command_line.openai_stream import (
    Answer,
    ask,
    endpoint_of,
    endpoint_options,
)
from helixweb.command_line.output import duration, number, one_line, table
from helixweb.command_line.session import Session
from helixweb.command_line.text_files import text_of

DEFAULT_REQUESTS = 64
_WORDS = ("the", "river", "carries", "small", "boats", "past", "quiet", "towns", "in", "spring")
PERCENTILES = (50, 95, 99)
_MOST_KINDS = 10


@dataclass(slots=True, kw_only=True)
class Measured:
    """Results of a run; `failures` counts by the endpoint's message."""

    streams: int
    finished: list[Answer] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    wall_s: float = 0.0

    def summary(self) -> dict[str, Any]:
        """The summary that `--json` prints."""
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
            **{
                name: percentiles([getattr(one, name) for one in self.finished])
                for name in ("ttft_s", "tpot_s", "e2e_s")
            },
        }


def percentiles(values: Sequence[float | None]) -> dict[str, float | None]:
    """Percentiles by nearest rank, so that each is a measured value; None is ignored."""
    ordered = sorted(value for value in values if value is not None)
    return {
        f"p{share}": ordered[max(0, -(-share * len(ordered) // 100) - 1)] if ordered else None
        for share in PERCENTILES
    }


def run_closed_loop(
    answer_to: Callable[[str], Answer],
    questions: Iterator[str],
    measured: Measured,
    *,
    seconds: float | None,
    tell: Callable[[Measured], None],
) -> None:
    """Add to `measured` until `questions` end, or for so many `seconds`; `tell` is called after
    each answer. After an interrupt `measured` has all results until then."""
    begin, lock = time.monotonic(), threading.Lock()

    def next_question() -> str | None:
        is_over = seconds is not None and time.monotonic() >= begin + seconds
        with lock:
            return None if is_over else next(questions, None)

    def one_stream() -> None:
        while (question := next_question()) is not None:
            answer, failure = None, "an answer without any text"
            try:
                answer = answer_to(question)
            except ClientError as error:
                failure = str(error) or type(error).__name__
            with lock:
                if answer is None or answer.ttft_s is None:
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


@command(endpoint_options)
def bench(
    site: Session,
    *,
    streams: Count = 8,
    requests: Count | None = None,
    seconds: Seconds | None = None,
    prompt_words: Count = 128,
    prompts: Path | None = None,
    max_tokens: Count = 64,
    **_: Any,
) -> int:
    """Measure an endpoint under so many requests at once.

    --streams: requests at once (%(default)s)
    --requests: in all (64)
    --seconds: begin no request after so long
    --prompt-words: each (%(default)s)
    --prompts FILE: one prompt per line instead
    --max-tokens: of an answer (%(default)s)
    """
    around = site.around
    http, model = endpoint_of(site)
    if requests is None and seconds is None:
        requests = DEFAULT_REQUESTS
    if prompts is not None:
        questions: Iterator[str] = itertools.cycle(_lines_of(prompts))
    else:
        text = " ".join(itertools.islice(itertools.cycle(_WORDS), prompt_words))
        # The number makes prompts different, so that no answer uses a cached prefix.
        questions = (f"{number} {text}" for number in itertools.count())
    measured, interrupted = Measured(streams=streams), False
    try:
        run_closed_loop(
            lambda question: ask(
                http, model, [{"role": "user", "content": question}], max_tokens=max_tokens
            ),
            itertools.islice(questions, requests),
            measured,
            seconds=seconds,
            tell=lambda so_far: around.redraw(
                f"{len(so_far.finished)} answered, {so_far.failures.total()} failed, "
                f"{so_far.wall_s:.0f} s"
            ),
        )
        http.close()
    except KeyboardInterrupt:  # the results until then are shown
        interrupted = True
    if around.err.isatty():
        around.tell("")
    summary = measured.summary()
    site.show(summary, _text(summary))
    if interrupted:
        around.warn("interrupted; this is what was answered until then")
        return exit_codes.INTERRUPTED
    if not measured.finished:
        kinds = "; ".join(one_line(words) for words, _ in measured.failures.most_common(3))
        raise CommandFailed(f"no request was answered: {kinds or 'none was sent'}")
    return exit_codes.OK


def _lines_of(path: Path) -> list[str]:
    found = [line for line in text_of(path).splitlines() if line.strip()]
    if not found:
        raise BadUsage(f"{path} has no prompt; write one per line")
    return found


def _text(summary: dict[str, Any]) -> str:
    head = (
        f"{summary['requests']} requests, {summary['streams']} at once, "
        f"{summary['wall_s']:.1f} s, {summary['failed']} failed\n"
        f"{number(summary['output_tokens_per_s'])} output tokens/s, "
        f"{number(summary['requests_per_s'], digits=2)} answers/s\n\n"
    )
    rows = [
        (name, *(duration(value) for value in summary[key].values()))
        for name, key in (("TTFT", "ttft_s"), ("TPOT", "tpot_s"), ("end to end", "e2e_s"))
    ]
    text = head + table(("", "P50", "P95", "P99"), rows)
    if summary["failed"]:
        failures = [(count, words) for words, count in summary["failures"].items()]
        text += "\n\n" + table(("FAILED", "BECAUSE"), failures)
    return text
