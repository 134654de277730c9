"""The sweep that a latency model is fitted to (Xiong et al. §3.1): batch sizes times lengths."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from planner.latency_fit import Timing
from runtime.engine.kv_cache import KvCache
from runtime.engine.model_runner import ModelRunner
from runtime.models.decoder import Decoder
from runtime.profiler.step_times import run_step


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySweep:
    """Timed steps of the engine's own model runner: whole prompts, and one more token each."""

    prefills: tuple[Timing, ...]
    decodes: tuple[Timing, ...]


def measure_latencies(
    decoder: Decoder,
    *,
    layers: int,
    batches: Sequence[int],
    lengths: Sequence[int],
    page_tokens: int,
    clock: Callable[[], float],
) -> LatencySweep:
    """Every batch size with every length, through the first `layers` layers of `decoder`.

    `lengths` are tokens of each prompt, and of each context before a decode. Takes memory for the
    largest batch of the longest; `clock` in seconds. Sending, sampling and the output head are not
    measured.
    """
    longest = max(lengths) + 1
    cache = KvCache(
        decoder.config,
        pages=max(batches) * -(-longest // page_tokens) * layers,
        page_tokens=page_tokens,
        device=decoder.device,
    )
    runner = ModelRunner(decoder, cache, max_context_tokens=longest)

    def timing(batch: int, tokens: int, *, position: int, n_tokens: int) -> Timing:
        seconds = run_step(
            runner,
            layers=layers,
            requests=batch,
            position=position,
            n_tokens=n_tokens,
            clock=clock,
            rest=lambda _: None,
        ).least_s
        return Timing(batch=batch, tokens=tokens, seconds=seconds)

    pairs = [(batch, length) for batch in batches for length in lengths]
    return LatencySweep(
        prefills=tuple(timing(b, length, position=0, n_tokens=length) for b, length in pairs),
        decodes=tuple(timing(b, length, position=length, n_tokens=1) for b, length in pairs),
    )
