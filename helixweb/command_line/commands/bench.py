"""`helixweb bench`: what an endpoint delivers under so many requests at once."""

import itertools
from argparse import Namespace
from pathlib import Path
from typing import Any

from helixweb.command_line import exit_codes
from helixweb.command_line.closed_loop import Measured, run_closed_loop
from helixweb.command_line.command import argument, command
from helixweb.command_line.endpoint import ENDPOINT, endpoint_of
from helixweb.command_line.failures import BadUsage, CommandFailed
from helixweb.command_line.numbers import seconds, whole_number
from helixweb.command_line.output import duration, json_text, number, one_line, table
from helixweb.command_line.surroundings import Surroundings
from helixweb.command_line.text_files import text_of

DEFAULT_REQUESTS = 64
_WORDS = ("the", "river", "carries", "small", "boats", "past", "quiet", "towns", "in", "spring")


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
