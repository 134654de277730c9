"""Measures an instance over its own API: the batches that a latency model is fitted to.

Batch sizes times prompt lengths (Xiong et al. §3.1), each batch sent at once. A prefill lasts until
the last of its prompts has its first token, a decode step as long as a token takes while all of
them write. What HTTP costs is in it, as it is for clients. Other traffic would be, too.
"""

import asyncio
import random
import string
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from planner.latency_fit import Timing
from runtime.api.events import usage_of
from runtime.front.asked import FIRST_CHARS_PER_TOKEN, Asked
from runtime.front.target import InstanceFailed, Target, TooSlow

_PATIENCE_S = 300.0  # of one token's answer
_WORD_CHARS = 5
_LEAST_GAPS = 2  # of one request while all write; else its step is not told


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSweep:
    """What was timed; `tokens` are as the instance counted them."""

    prefills: tuple[Timing, ...]
    decodes: tuple[Timing, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """When each token of one answer came, and what the instance counted."""

    began_s: float
    tokens_s: tuple[float, ...]
    tokens_per_event: float


async def sweep_instance(
    instance: Target,
    *,
    batches: Sequence[int],
    lengths: Sequence[int],
    output_tokens: int,
    repeats: int,
    clock: Callable[[], float],
    rng: random.Random,
) -> ApiSweep:
    """Every batch size with every length, the least of `repeats`. Raises InstanceFailed,
    InstanceFull, Refused."""
    chars_per_token = await _chars_per_token(instance, rng)
    prefills, decodes = [], []
    for length in lengths:
        chars = round(length * chars_per_token)
        counted = await _counted(instance, _text(rng, chars))
        for batch in batches:
            prefill_s, decode_s = [], []
            for _ in range(repeats):
                written = await asyncio.gather(
                    *(
                        _write(instance, _text(rng, chars), output_tokens, clock)
                        for _ in range(batch)
                    )
                )
                prefill_s.append(_prefill_s(written))
                decode_s += _step_s(written)
            prefills.append(Timing(batch=batch, tokens=counted, seconds=min(prefill_s)))
            if decode_s:
                context = counted + output_tokens // 2
                decodes.append(Timing(batch=batch, tokens=context, seconds=min(decode_s)))
    return ApiSweep(prefills=tuple(prefills), decodes=tuple(decodes))


def _prefill_s(written: Sequence[_Written]) -> float:
    began_s = min(one.began_s for one in written)
    return max(one.tokens_s[0] for one in written) - began_s


def _step_s(written: Sequence[_Written]) -> list[float]:
    """Seconds of a token while all write, by each of them that wrote enough meanwhile."""
    from_s = max(one.tokens_s[0] for one in written)
    until_s = min(one.tokens_s[-1] for one in written)
    steps = []
    for one in written:
        times = [at_s for at_s in one.tokens_s if from_s <= at_s <= until_s]
        if len(times) > _LEAST_GAPS:
            steps.append((times[-1] - times[0]) / (len(times) - 1) / one.tokens_per_event)
    return [sum(steps) / len(steps)] if steps else []


async def _write(
    instance: Target, prompt: str, max_tokens: int, clock: Callable[[], float]
) -> _Written:
    """One answer, timed. Raises InstanceFailed where nothing was written."""
    began_s, times_s, output = clock(), [], None
    asked = _asked(prompt, max_tokens=max_tokens, stream=True)
    async with aclosing(instance.stream(asked, passed_on={})) as events:
        async for event in events:
            if event.tokens:
                times_s.append(clock())
            if event.usage is not None:
                output = event.usage[1]
    if not times_s:
        raise InstanceFailed("it wrote nothing that could be timed; give it another prompt length")
    per_event = max(1.0, (output or len(times_s)) / len(times_s))
    return _Written(began_s=began_s, tokens_s=tuple(times_s), tokens_per_event=per_event)


async def _counted(instance: Target, prompt: str) -> int:
    """Its tokens, as the instance counts them."""
    asked = _asked(prompt, max_tokens=1, stream=False)
    try:
        usage = usage_of(await instance.whole(asked, patience_s=_PATIENCE_S, passed_on={}))
    except TooSlow as error:
        raise InstanceFailed(str(error)) from error
    if usage is None:
        raise InstanceFailed("it reports no usage, so that the length of its prompts is not known")
    return usage[0]


async def _chars_per_token(instance: Target, rng: random.Random) -> float:
    text = _text(rng, round(64 * FIRST_CHARS_PER_TOKEN))
    return len(text) / max(1, await _counted(instance, text))


def _text(rng: random.Random, chars: int) -> str:
    """Words that were never sent before, so that no prefix of them is cached."""
    words = max(1, round(chars / (_WORD_CHARS + 1)))
    letters = rng.choices(string.ascii_lowercase, k=words * _WORD_CHARS)
    return " ".join(
        "".join(letters[at : at + _WORD_CHARS]) for at in range(0, len(letters), _WORD_CHARS)
    )


def _asked(prompt: str, *, max_tokens: int, stream: bool) -> Asked:
    return Asked(
        endpoint="/v1/completions",
        body={"prompt": prompt, "max_tokens": max_tokens, "temperature": 1.0, "stream": stream},
        stream=stream,
        wants_usage=True,
        choices=1,
        max_tokens=max_tokens,
        prompt_chars=len(prompt),
        prompt_tokens=None,
    )
