"""Clients that stream completions, each asking again as soon as it is answered."""

import json
import random
import threading
import time
from dataclasses import dataclass
from typing import Any

import httpx


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A request that was answered; moments of one clock."""

    asked_s: float
    first_s: float
    last_s: float
    prompt_tokens: int
    output_tokens: int

    @property
    def ttft_s(self) -> float:
        return self.first_s - self.asked_s

    @property
    def tpot_s(self) -> float | None:
        more = self.output_tokens - 1
        return (self.last_s - self.first_s) / more if more > 0 else None


class Streams:
    """A context manager; what was answered so far is in `answered`."""

    def __init__(
        self,
        url: str,
        *,
        key: str,
        model: str,
        streams: int,
        prompt_tokens: int,
        output_tokens: int,
        vocabulary: int,
        seed: int,
    ) -> None:
        self.answered: list[Answered] = []
        self.token_moments_s: list[float] = []
        self.failed = 0
        self._stop = threading.Event()
        self._body = {
            "model": model, "max_tokens": output_tokens, "temperature": 0, "stream": True,
            "return_token_ids": True,
        }  # fmt: skip
        self._prompt_tokens, self._vocabulary = prompt_tokens, vocabulary
        self._client = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {key}"},
            timeout=120,
            limits=httpx.Limits(max_connections=None),
        )
        self._threads = [
            threading.Thread(target=self._ask, args=(random.Random(f"{seed}-{number}"),))
            for number in range(streams)
        ]

    def __enter__(self) -> "Streams":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._client.close()

    def _ask(self, draw: random.Random) -> None:
        while not self._stop.is_set():
            # Drawn again, so that no prompt shares another's pages; above the special tokens.
            prompt = [draw.randrange(16, self._vocabulary) for _ in range(self._prompt_tokens)]
            try:
                self._stream(self._body | {"prompt": prompt})
            except httpx.HTTPError:
                self.failed += 1
                self._stop.wait(0.5)

    def _stream(self, body: dict[str, Any]) -> None:
        asked_s, moments = time.monotonic(), []
        with self._client.stream("POST", "/v1/completions", json=body) as answer:
            answer.raise_for_status()
            for line in answer.iter_lines():
                if not line.startswith("data: {"):
                    continue
                now_s = time.monotonic()
                choices = json.loads(line.removeprefix("data: "))["choices"]
                ids = (choices[0].get("token_ids") or ()) if choices else ()
                moments += [now_s] * len(ids)
        if not moments:
            self.failed += 1
            return
        self.token_moments_s += moments
        self.answered.append(
            Answered(
                asked_s=asked_s,
                first_s=moments[0],
                last_s=moments[-1],
                prompt_tokens=self._prompt_tokens,
                output_tokens=len(moments),
            )
        )
