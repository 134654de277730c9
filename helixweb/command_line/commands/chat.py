"""`helixweb chat`: talk to a deployed model, word by word as it answers."""

from collections.abc import Sequence
from typing import Annotated, Any

from helixweb.command_line.command import command
from helixweb.command_line.numbers import Count, temperature
from helixweb.command_line.openai_stream import (
    Answer,
    ask,
    endpoint_of,
    endpoint_options,
)
from helixweb.command_line.output import duration, json_text, number, printable
from helixweb.command_line.session import Session


@command(endpoint_options)
def chat(
    site: Session,
    message: Sequence[str] = (),
    *,
    system: str | None = None,
    max_tokens: Count | None = None,
    temperature: Annotated[float, temperature] | None = None,
    **_: Any,
) -> None:
    """Talk to a deployed model.

    message: one question; without any a conversation
    --system: system message, before the first question
    """
    around = site.around
    http, model = endpoint_of(site)
    messages = [{"role": "system", "content": system}] if system else []
    options = {"max_tokens": max_tokens, "temperature": temperature}

    def hear(text: str) -> None:
        if not site.as_json:
            around.out.write(printable(text))
            around.out.flush()

    def answer(question: str) -> None:
        """Print the answer as it comes; question and answer are added to `messages`."""
        messages.append({"role": "user", "content": question})
        found = ask(http, model, messages, hear, **options)
        messages.append({"role": "assistant", "content": found.text})
        _sum_up(site, found)

    with http:
        if message or not around.input.isatty():
            answer(" ".join(message) or around.input.read())
            return
        around.warn(f"{model} at {http.base_url}; an empty line or Ctrl-D ends")
        while text := _next(site):
            answer(text)


def _next(site: Session) -> str:
    site.around.err.write("> ")
    site.around.err.flush()
    return site.around.input.readline().strip()


def _sum_up(site: Session, answer: Answer) -> None:
    if site.as_json:
        names = ("text", "finish_reason", "completion_tokens", "ttft_s", "e2e_s", "helix")
        site.around.say(json_text({name: getattr(answer, name) for name in names}))
        return
    if not answer.text.endswith("\n"):
        site.around.say()
    words = [
        f"TTFT {duration(answer.ttft_s)}",
        f"{number(1 / answer.tpot_s if answer.tpot_s else None)} tokens/s",
        answer.finish_reason or "broken off",
    ]
    if answer.helix is not None:
        words.append(" > ".join(str(hop["node"]) for hop in answer.helix.get("pipeline", [])))
    site.around.tell(f"[{', '.join(word for word in words if word)}]")
