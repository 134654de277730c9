"""`helixweb bench`: what an endpoint delivers under so many requests at once."""

import itertools
import threading
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from helixweb.client import ClientError
from helixweb.command_line import exit_codes
from helixweb.command_line.command import argument, command
from helixweb.command_line.endpoint import ENDPOINT, endpoint_of
from helixweb.command_line.failures import BadUsage, CommandFailed
from helixweb.command_line.numbers import seconds, whole_number
from helixweb.command_line.openai_stream import TIMEOUT, Answer, Endpoint, ask
from helixweb.command_line.output import duration, json_text, number, one_line, table
from helixweb.command_line.surroundings import Surroundings
from helixweb.command_line.text_files import text_of

DEFAULT_REQUESTS = 64
_WORDS = ("the", "river", "carries", "small", "boats", "past", "quiet", "towns", "in", "spring")
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


@command(
    *ENDPOINT,
    argument("--streams", type=whole_number, default=8, help="requests at once (8)"),
    argument("--requests", type=whole_number, help=f"in all ({DEFAULT_REQUESTS})"),
    argument("--seconds", type=seconds, help="begin no request after so long"),
    argument("--prompt-words", type=whole_number, default=128, help="each (128)"),
    argument("--prompts", type=Path, metavar="FILE", help="one prompt per line instead"),
    argument("--max-tokens", type=whole_number, default=64, help="of an answer (64)"),
    opens=False,
)
def bench(arguments: Namespace) -> int:
    around: Surroundings = arguments.surroundings
    endpoint = endpoint_of(arguments)
    prompts = _prompts(arguments)
    requests = arguments.requests
    if requests is None and arguments.seconds is None:
        requests = DEFAULT_REQUESTS
    # The number keeps prompts apart, so that no answer comes from a cached beginning.
    questions = (
        prompts[number % len(prompts)] if arguments.prompts else f"{number} {prompts[0]}"
        for number in itertools.islice(itertools.count(), requests)
    )
    measured = Measured(streams=arguments.streams)
    interrupted = False
    try:
        run_closed_loop(
            endpoint,
            questions,
            measured,
            max_tokens=arguments.max_tokens,
            seconds=arguments.seconds,
            tell=lambda measured: _show_progress(around, measured),
            transport=around.transport,
        )
    except KeyboardInterrupt:  # what was measured until then is shown
        interrupted = True
    if around.err.isatty():
        around.err.write("\n")
    summary = measured.summary()
    around.say(json_text(summary) if arguments.json else _text(summary))
    if interrupted:
        around.warn("interrupted; this is what was answered until then")
        return exit_codes.INTERRUPTED
    if not measured.finished:
        kinds = "; ".join(one_line(words) for words, _ in measured.failures.most_common(3))
        raise CommandFailed(f"no request was answered: {kinds or 'none was sent'}")
    return exit_codes.OK


def _show_progress(around: Surroundings, measured: Measured) -> None:
    """One line on stderr, if it is a terminal."""
    if around.err.isatty():
        done, failed = len(measured.finished), measured.failures.total()
        around.err.write(f"\r{done} answered, {failed} failed, {measured.wall_s:.0f} s ")
        around.err.flush()


def _prompts(arguments: Namespace) -> list[str]:
    if arguments.prompts is None:
        words = [_WORDS[index % len(_WORDS)] for index in range(arguments.prompt_words)]
        return [" ".join(words)]
    lines = text_of(arguments.prompts).splitlines()
    found = [line for line in lines if line.strip()]
    if not found:
        raise BadUsage(f"{arguments.prompts} has no prompt; write one per line")
    return found


def _text(summary: dict[str, Any]) -> str:
    failed = summary["failed"]
    head = (
        f"{summary['requests']} requests, {summary['streams']} at once, "
        f"{summary['wall_s']:.1f} s, {failed} failed\n"
        f"{number(summary['output_tokens_per_s'])} output tokens/s, "
        f"{number(summary['requests_per_s'], digits=2)} answers/s\n\n"
    )
    rows = [
        (name, *(duration(value) for value in summary[key].values()))
        for name, key in (("TTFT", "ttft_s"), ("TPOT", "tpot_s"), ("end to end", "e2e_s"))
    ]
    text = head + table(("", "P50", "P95", "P99"), rows)
    if failed:
        told = [(count, words) for words, count in summary["failures"].items()]
        text += "\n\n" + table(("FAILED", "BECAUSE"), told)
    return text
