"""`helixweb bench`: what an endpoint delivers under so many requests at once."""

import argparse
import asyncio
from pathlib import Path
from typing import Any

from helixweb.command_line import exit_codes
from helixweb.command_line.closed_loop import Load, Measured, run_closed_loop
from helixweb.command_line.endpoint import endpoint_of, endpoint_options
from helixweb.command_line.openai_stream import chat_body
from helixweb.command_line.output import duration, json_text, number, one_line, table
from helixweb.command_line.registry import COMMANDS, Subparsers
from helixweb.command_line.reporting import BadUsage, CommandFailed
from helixweb.command_line.session import connection_options, seconds, whole_number
from helixweb.command_line.surroundings import Surroundings
from helixweb.command_line.text_files import text_of

DEFAULT_REQUESTS = 64
_WORDS = ("the", "river", "carries", "small", "boats", "past", "quiet", "towns", "in", "spring")


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser = subparsers.add_parser(
        "bench", help=COMMANDS["bench"][1], parents=[connection_options()]
    )
    endpoint_options(parser)
    parser.add_argument("--streams", type=whole_number, default=8, help="requests at once (8)")
    parser.add_argument("--requests", type=whole_number, help=f"in all ({DEFAULT_REQUESTS})")
    parser.add_argument("--seconds", type=seconds, help="begin no request after so long")
    parser.add_argument("--prompt-words", type=whole_number, default=128, help="each (128)")
    parser.add_argument("--prompts", type=Path, metavar="FILE", help="one prompt per line instead")
    parser.add_argument("--max-tokens", type=whole_number, default=64, help="of an answer (64)")
    return parser


def run(arguments: argparse.Namespace) -> int:
    around: Surroundings = arguments.surroundings
    endpoint = endpoint_of(arguments)
    prompts = _prompts(arguments)

    def body_of(number: int) -> dict[str, Any]:
        text = prompts[number % len(prompts)]
        return chat_body(
            # The number keeps prompts apart, so that no answer comes from a cached beginning.
            [{"role": "user", "content": text if arguments.prompts else f"{number} {text}"}],
            model=endpoint.model,
            max_tokens=arguments.max_tokens,
            temperature=None,
        )

    requests = arguments.requests
    if requests is None and arguments.seconds is None:
        requests = DEFAULT_REQUESTS
    load = Load(
        url=endpoint.url,
        key=endpoint.key,
        streams=arguments.streams,
        requests=requests,
        seconds=arguments.seconds,
        body_of=body_of,
    )
    tell = _Progress(around)
    measured = Measured(streams=load.streams)
    interrupted = False
    try:
        asyncio.run(run_closed_loop(load, measured, tell=tell, transport=around.async_transport))
    except KeyboardInterrupt:  # what was measured until then is worth telling
        interrupted = True
    tell.end()
    summary = measured.summary()
    around.say(json_text(summary) if arguments.json else _text(summary))
    if interrupted:
        around.warn("interrupted; this is what was answered until then")
        return exit_codes.INTERRUPTED
    if not measured.finished:
        kinds = "; ".join(one_line(words) for words, _ in measured.failures.most_common(3))
        raise CommandFailed(f"no request was answered: {kinds or 'none was sent'}")
    return exit_codes.OK


class _Progress:
    """One line on stderr, where a person looks."""

    def __init__(self, around: Surroundings) -> None:
        self._err = around.err
        self._shows = around.err.isatty()

    def __call__(self, measured: Measured) -> None:
        if self._shows:
            done, failed = len(measured.finished), measured.failures.total()
            self._err.write(f"\r{done} answered, {failed} failed, {measured.wall_s:.0f} s ")
            self._err.flush()

    def end(self) -> None:
        if self._shows:
            self._err.write("\n")


def _prompts(arguments: argparse.Namespace) -> list[str]:
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
