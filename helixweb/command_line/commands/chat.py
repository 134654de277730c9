"""`helixweb chat`: talk to a deployed model, word by word as it answers."""

import argparse
import time

import httpx

from helixweb.client.connection import unreachable
from helixweb.command_line import exit_codes
from helixweb.command_line.endpoint import Endpoint, endpoint_of, endpoint_options
from helixweb.command_line.openai_stream import PATH, TIMEOUT, Chunk, chat_body, chunk_of, refusal
from helixweb.command_line.output import duration, json_text, number, printable
from helixweb.command_line.registry import COMMANDS, Subparsers
from helixweb.command_line.session import connection_options, number_that, whole_number
from helixweb.command_line.surroundings import Surroundings


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser = subparsers.add_parser("chat", help=COMMANDS["chat"][1], parents=[connection_options()])
    endpoint_options(parser)
    parser.add_argument("message", nargs="*", help="one question; without any a conversation")
    parser.add_argument("--system", help="what the model is told first")
    parser.add_argument("--max-tokens", type=whole_number)
    parser.add_argument("--temperature", type=_temperature)
    return parser


def run(arguments: argparse.Namespace) -> int:
    around: Surroundings = arguments.surroundings
    endpoint = endpoint_of(arguments)
    messages = [{"role": "system", "content": arguments.system}] if arguments.system else []
    with httpx.Client(timeout=TIMEOUT, transport=around.transport) as http:
        if arguments.message:
            messages.append({"role": "user", "content": " ".join(arguments.message)})
            _ask(http, endpoint, messages, arguments)
            return exit_codes.OK
        if not around.input.isatty():
            messages.append({"role": "user", "content": around.input.read()})
            _ask(http, endpoint, messages, arguments)
            return exit_codes.OK
        around.warn(f"{endpoint.model} at {endpoint.url}; an empty line or Ctrl-D ends")
        while text := _next(around):
            messages.append({"role": "user", "content": text})
            answer = _ask(http, endpoint, messages, arguments)
            messages.append({"role": "assistant", "content": answer})
    return exit_codes.OK


def _next(around: Surroundings) -> str:
    around.err.write("> ")
    around.err.flush()
    return around.input.readline().strip()


def _ask(
    http: httpx.Client,
    endpoint: Endpoint,
    messages: list[dict[str, str]],
    arguments: argparse.Namespace,
) -> str:
    """Prints the answer as it comes; returns it."""
    around: Surroundings = arguments.surroundings
    body = chat_body(
        messages,
        model=endpoint.model,
        max_tokens=arguments.max_tokens,
        temperature=arguments.temperature,
    )
    headers = {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}
    begin, first_s, chunks = time.monotonic(), None, list[Chunk]()
    try:
        with http.stream("POST", endpoint.url + PATH, json=body, headers=headers) as answer:
            if not answer.is_success:
                answer.read()
                raise refusal(answer)
            for line in answer.iter_lines():
                chunk = chunk_of(line)
                if chunk is None:
                    continue
                chunks.append(chunk)
                if chunk.text and first_s is None:
                    first_s = time.monotonic() - begin
                if chunk.text and not arguments.json:
                    around.out.write(printable(chunk.text))
                    around.out.flush()
    except httpx.TransportError as error:
        raise unreachable(endpoint.url, error) from error
    _sum_up(around, chunks, first_s, time.monotonic() - begin, as_json=arguments.json)
    return "".join(chunk.text for chunk in chunks)


def _sum_up(
    around: Surroundings,
    chunks: list[Chunk],
    first_s: float | None,
    whole_s: float,
    *,
    as_json: bool,
) -> None:
    tokens = next((one.completion_tokens for one in chunks if one.completion_tokens), None)
    finish = next((one.finish_reason for one in chunks if one.finish_reason), None)
    helix = next((one.helix for one in chunks if one.helix), None)
    text = "".join(chunk.text for chunk in chunks)
    if as_json:
        told = {
            "text": text, "finish_reason": finish, "completion_tokens": tokens,
            "ttft_s": first_s, "e2e_s": whole_s, "helix": helix,
        }  # fmt: skip
        around.say(json_text(told))
        return
    if not text.endswith("\n"):
        around.say()
    rate = None if tokens is None or first_s is None or tokens < 2 or whole_s <= first_s else (
        (tokens - 1) / (whole_s - first_s)
    )  # fmt: skip
    words = [f"TTFT {duration(first_s)}", f"{number(rate)} tokens/s", finish or "broken off"]
    if helix is not None:
        words.append(" > ".join(str(hop["node"]) for hop in helix.get("pipeline", [])))
    around.err.write(f"[{', '.join(word for word in words if word)}]\n")
    around.err.flush()


def _temperature(text: str) -> float:
    return number_that(
        lambda value: 0 <= value <= 2, text, "is not allowed; give a number from 0 to 2"
    )
