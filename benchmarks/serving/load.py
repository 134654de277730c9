"""Concurrent streams against the coordinator: all begin at once, all answers have one length."""

import asyncio
import time

import httpx
from cluster import API_KEY, MODEL


def run_streams(url: str, prompts: list[list[int]], *, output_tokens: int) -> tuple[int, float]:
    """Output tokens of all streams, and the seconds from the first request to the last token.

    Raises RuntimeError when an answer is shorter than asked for.
    """
    return asyncio.run(_run(url, prompts, output_tokens))


async def _run(url: str, prompts: list[list[int]], output_tokens: int) -> tuple[int, float]:
    limits = httpx.Limits(max_connections=None)
    headers = {"Authorization": f"Bearer {API_KEY}"}
    async with httpx.AsyncClient(
        base_url=url, headers=headers, limits=limits, timeout=3600
    ) as client:
        began = time.perf_counter()
        counts = await asyncio.gather(
            *(_stream(client, prompt, output_tokens) for prompt in prompts)
        )
        return sum(counts), time.perf_counter() - began


async def _stream(client: httpx.AsyncClient, prompt: list[int], output_tokens: int) -> int:
    """Events, one per token: a client that reads them but does not look into each."""
    body = {
        "model": MODEL,
        "prompt": prompt,
        "max_tokens": output_tokens,
        "temperature": 0,
        "stream": True,
        "return_token_ids": True,
    }
    events = 0
    async with client.stream("POST", "/v1/completions", json=body) as answer:
        if answer.status_code != httpx.codes.OK:
            raise RuntimeError((await answer.aread()).decode())
        async for chunk in answer.aiter_bytes():
            events += chunk.count(b"data: ")
    tokens = events - 2  # the opening and [DONE]
    if tokens != output_tokens:
        raise RuntimeError(f"{tokens} tokens came where {output_tokens} were asked for")
    return tokens
