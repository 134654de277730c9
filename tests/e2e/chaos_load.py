"""Clients that stream answers without a pause, and remember when each token came.

Every prompt has one right answer, the one it got alone when nothing was disturbed: half of them are
greedy, the others sampled with a seed, by bf16 stages with reproducible CPU products. A stream that
differs by one token, or ends with an error, is a lost one.
"""

import asyncio
import json
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import httpx

from tests.e2e.chaos_cluster import API_KEY, MODEL

OUTPUT_TOKENS = 80
FAR = (0, 30, 60)  # tokens of an answer after which its prefill is measured
_PROMPTS = 12
_PATIENCE_S = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """One request: what it got, and when (monotonic)."""

    prompt: int
    asked_s: float
    token_ids: tuple[int, ...] = ()
    came_s: tuple[float, ...] = ()
    error: str = ""

    def longest_gap(self) -> tuple[float, int]:
        """Seconds between one token and the next, or before the first, and the tokens before it."""
        gaps = [b - a for a, b in pairwise((self.asked_s, *self.came_s))]
        return max(((gap_s, index) for index, gap_s in enumerate(gaps)), default=(0.0, 0))

    def ran_at(self, at_s: float) -> bool:
        return self.asked_s <= at_s <= (self.came_s[-1] if self.came_s else float("inf"))


@dataclass(slots=True, kw_only=True)
class Load:
    """`answers[i]` is the right answer of `prompts[i]`; `prefills_s[i]` the time to the first token
    behind so many tokens of it, undisturbed and alone; empty until it is measured. Every second
    prompt is sampled, unless all are `greedy`."""

    url: str
    prompts: list[list[int]]
    output_tokens: int = OUTPUT_TOKENS
    greedy: bool = False
    answers: list[tuple[int, ...]] = field(default_factory=list)
    prefills_s: list[dict[int, float]] = field(default_factory=list)

    async def learn_answers(self) -> None:
        """One at a time, before anything is disturbed; prompts with short answers are left out."""
        long_ones: list[list[int]] = []
        async with self._client() as client:
            for prompt, token_ids in enumerate(self.prompts):
                stream = await self._ask(client, prompt)
                if stream.error:
                    raise RuntimeError(f"an undisturbed request failed: {stream}")
                if len(stream.token_ids) == self.output_tokens:
                    long_ones.append(token_ids)
                    self.answers.append(stream.token_ids)
        self.prompts = long_ones

    async def press(self, *, clients: int, until: asyncio.Event, seed: int) -> list[Stream]:
        """`clients` streams at any time until the event; those under way then still end."""
        streams: list[Stream] = []

        async def one(client: httpx.AsyncClient, dice: random.Random) -> None:
            while not until.is_set():
                streams.append(await self._ask(client, dice.randrange(len(self.prompts))))

        async with self._client() as client:
            dice = random.Random(seed)
            seeds = [dice.getrandbits(64) for _ in range(clients)]
            await asyncio.gather(*(one(client, random.Random(own)) for own in seeds))
        return streams

    async def ask_each(self, *, clients: int) -> list[Stream]:
        """Every prompt once, so many at a time."""
        left = iter(range(len(self.prompts)))

        async def one(client: httpx.AsyncClient) -> list[Stream]:
            return [await self._ask(client, prompt) for prompt in left]

        async with self._client() as client:
            asked = await asyncio.gather(*(one(client) for _ in range(clients)))
        return [stream for streams in asked for stream in streams]

    async def learn_prefills(self) -> None:
        """What beginning an answer anew costs, by how far it was: the median of three."""
        async with self._client() as client:
            for prompt, answer in enumerate(self.answers):
                told: dict[int, float] = {}
                for far in FAR:
                    so_far = [*self.prompts[prompt], *answer[:far]]
                    asked = [await self._ask(client, prompt, so_far, most=1) for _ in range(3)]
                    told[far] = statistics.median(one.longest_gap()[0] for one in asked)
                self.prefills_s.append(told)

    def gap_beyond_prefill_s(self, stream: Stream) -> float:
        """Its longest gap without what a prefill that is no longer takes."""
        gap_s, tokens = stream.longest_gap()
        far = max(length for length in FAR if length <= tokens)
        return gap_s - self.prefills_s[stream.prompt][far]

    def is_right(self, stream: Stream) -> bool:
        return not stream.error and stream.token_ids == self.answers[stream.prompt]

    def _client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=self.url,
            headers={"Authorization": f"Bearer {API_KEY}"},
            timeout=_PATIENCE_S,
            limits=httpx.Limits(max_connections=None),
        )

    async def _ask(
        self,
        client: httpx.AsyncClient,
        prompt: int,
        so_far: Sequence[int] = (),
        *,
        most: int | None = None,
    ) -> Stream:
        """`so_far`: instead of the prompt alone."""
        asked_s = time.monotonic()
        token_ids: list[int] = []
        came_s: list[float] = []
        error = ""
        prompt_ids = self.prompts[prompt]
        body = {
            "model": MODEL,
            "prompt": list(so_far) or prompt_ids,
            "max_tokens": most or self.output_tokens,
            "temperature": 0 if self.greedy else prompt_ids[0] % 2,
            "seed": 1,
            "ignore_eos": self.greedy,
            "stream": True,
            "return_token_ids": True,
        }
        async with client.stream("POST", "/v1/completions", json=body) as answer:
            if answer.status_code != httpx.codes.OK:
                error = f"{answer.status_code}: {(await answer.aread())[:300]!r}"
            else:
                async for line in answer.aiter_lines():
                    if not line.startswith("data: {"):
                        continue
                    event = json.loads(line.removeprefix("data: "))
                    if "error" in event:
                        error = json.dumps(event["error"])
                        break
                    new = new_tokens(event)
                    token_ids += new
                    came_s += [time.monotonic()] * len(new)
        return Stream(
            prompt=prompt,
            asked_s=asked_s,
            token_ids=tuple(token_ids),
            came_s=tuple(came_s),
            error=error,
        )


def make_load(url: str, *, seed: int) -> Load:
    """Prompts of 10 to 200 tokens, drawn by lot."""
    dice = random.Random(seed)
    prompts = [
        [dice.randrange(5, 260) for _ in range(dice.randrange(10, 200))] for _ in range(_PROMPTS)
    ]
    return Load(url=url, prompts=prompts)


def new_tokens(event: dict[str, object]) -> Sequence[int]:
    choices = event.get("choices")
    if not isinstance(choices, list) or not choices:
        return []
    found: Sequence[int] = choices[0].get("token_ids") or []
    return found
