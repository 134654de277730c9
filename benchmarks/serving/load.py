"""Concurrent streams against a server: all begin at once, all answers have one length."""

import asyncio
import json
import time
from itertools import pairwise

import httpx
from cluster import API_KEY, MODEL, Running
from measuring import Measured


def measured_streams(running: Running, prompts: list[list[int]], *, output_tokens: int) -> Measured:
    """From the first request to the last token; the client's CPU time counts as the server's.

    Raises RuntimeError when an answer is shorter than asked for.
    """
    cpu_began, own_began = running.cpu_s(), time.process_time()
    began = time.perf_counter()
    arrivals = asyncio.run(_run(running.url, prompts, output_tokens))
    seconds = time.perf_counter() - began
    return Measured(
        tokens=len(prompts) * output_tokens,
        seconds=seconds,
        cpu_s=running.cpu_s() - cpu_began + time.process_time() - own_began,
        gaps_s=tuple(b - a for each in arrivals for a, b in pairwise(each)),
    )


async def _run(url: str, prompts: list[list[int]], output_tokens: int) -> list[list[float]]:
    limits = httpx.Limits(max_connections=None)
    headers = {"Authorization": f"Bearer {API_KEY}"}
    async with httpx.AsyncClient(
        base_url=url, headers=headers, limits=limits, timeout=3600
    ) as client:
        return await asyncio.gather(*(_stream(client, prompt, output_tokens) for prompt in prompts))


async def _stream(client: httpx.AsyncClient, prompt: list[int], output_tokens: int) -> list[float]:
    """When its events came: a client that reads them but does not look into each."""
    body = {
        "model": MODEL,
        "prompt": prompt,
        "max_tokens": output_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    arrivals, last = [], b""
    async with client.stream("POST", "/v1/completions", json=body) as answer:
        if answer.status_code != httpx.codes.OK:
            raise RuntimeError((await answer.aread()).decode())
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                arrivals.append(time.perf_counter())
                last = line.encode()
    tokens = json.loads(last.removeprefix(b"data: "))["usage"]["completion_tokens"]
    if tokens != output_tokens:
        raise RuntimeError(f"{tokens} tokens came where {output_tokens} were asked for")
    return arrivals[:-1][:output_tokens]  # the last has the usage, one before may have no text
