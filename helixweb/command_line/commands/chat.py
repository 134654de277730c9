"""`helixweb chat`: talk to a deployed model, word by word as it answers."""

from argparse import Namespace

import httpx

from helixweb.command_line.command import argument, command
from helixweb.command_line.endpoint import ENDPOINT, endpoint_of
from helixweb.command_line.numbers import temperature, whole_number
from helixweb.command_line.openai_stream import TIMEOUT, Answer, Endpoint, ask
from helixweb.command_line.output import duration, json_text, number, printable
from helixweb.command_line.surroundings import Surroundings


@command(
    *ENDPOINT,
    argument("message", nargs="*", help="one question; without any a conversation"),
    argument("--system", help="system message, before the first question"),
    argument("--max-tokens", type=whole_number),
    argument("--temperature", type=temperature),
    opens=False,
)
def chat(arguments: Namespace) -> None:
    around: Surroundings = arguments.surroundings
    endpoint = endpoint_of(arguments)
    messages = [{"role": "system", "content": arguments.system}] if arguments.system else []
    with httpx.Client(timeout=TIMEOUT, transport=around.transport) as http:
        if arguments.message or not around.input.isatty():
            question = " ".join(arguments.message) or around.input.read()
            _ask(http, endpoint, messages, question, arguments)
            return
        around.warn(f"{endpoint.model} at {endpoint.url}; an empty line or Ctrl-D ends")
        while text := _next(around):
            _ask(http, endpoint, messages, text, arguments)


def _next(around: Surroundings) -> str:
    around.err.write("> ")
    around.err.flush()
    return around.input.readline().strip()


def _ask(
    http: httpx.Client,
    endpoint: Endpoint,
    messages: list[dict[str, str]],
    question: str,
    arguments: Namespace,
) -> None:
    """Print the answer as it comes; question and answer are added to `messages`."""
    around: Surroundings = arguments.surroundings

    def hear(text: str) -> None:
        if not arguments.json:
            around.out.write(printable(text))
            around.out.flush()

    messages.append({"role": "user", "content": question})
    options = {"max_tokens": arguments.max_tokens, "temperature": arguments.temperature}
    answer = ask(http, endpoint, messages, hear, **options)
    messages.append({"role": "assistant", "content": answer.text})
    if arguments.json:
        names = ("text", "finish_reason", "completion_tokens", "ttft_s", "e2e_s", "helix")
        around.say(json_text({name: getattr(answer, name) for name in names}))
    else:
        _sum_up(around, answer)


def _sum_up(around: Surroundings, answer: Answer) -> None:
    if not answer.text.endswith("\n"):
        around.say()
    words = [
        f"TTFT {duration(answer.ttft_s)}",
        f"{number(1 / answer.tpot_s if answer.tpot_s else None)} tokens/s",
        answer.finish_reason or "broken off",
    ]
    if answer.helix is not None:
        words.append(" > ".join(str(hop["node"]) for hop in answer.helix.get("pipeline", [])))
    around.err.write(f"[{', '.join(word for word in words if word)}]\n")
    around.err.flush()
