"""Chat clients that keep a coordinator busy: each asks again as soon as it is answered."""

import itertools
import threading
from typing import Any

import httpx

WORDS = ("the", "of", "and", "to", "in", "a", "is", "that", "it", "for", "on", "as", "with")


class Chatters:
    """A context manager; `tokens` counts what has been answered so far.

    `refused`: requests that were, or that got no answer in two minutes.
    """

    def __init__(
        self, url: str, *, key: str, model: str, streams: int, max_tokens: int, prompt_words: int
    ) -> None:
        self.tokens = 0
        self.answers = 0
        self.refused = 0
        self._stop = threading.Event()
        self._count = threading.Lock()
        self._numbers = itertools.count()
        self._body = {"model": model, "max_tokens": max_tokens, "temperature": 0}
        self._prompt_words = prompt_words
        self._client = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {key}"},
            timeout=120,
            limits=httpx.Limits(max_connections=None),
        )
        self._threads = [
            threading.Thread(target=self._ask, name=f"chat-{number}") for number in range(streams)
        ]

    def __enter__(self) -> "Chatters":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._client.close()

    def _ask(self) -> None:
        while not self._stop.is_set():
            asked = self._body | {"prompt": self._next()}
            try:
                answer = self._client.post("/v1/completions", json=asked)
                answer.raise_for_status()
            except httpx.HTTPError:
                self.refused += 1
                self._stop.wait(0.5)
                continue
            usage: dict[str, Any] = answer.json()["usage"]
            with self._count:
                self.tokens += usage["completion_tokens"]
                self.answers += 1

    def _next(self) -> str:
        """No two prompts begin alike, so that none shares another's pages."""
        number = next(self._numbers)
        rest = (WORDS[(number * 7 + step) % len(WORDS)] for step in range(self._prompt_words))
        return " ".join([str(number), *rest])
