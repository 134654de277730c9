"""How full an engine says it is, by the names of all its versions; pure.

vLLM renamed its gauges over time; the names known here are read, others are not
guessed. A page that cannot be read costs nothing but this: routing goes on by its own count.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from runtime.instances.exposition import NoExposition, Sample, samples_of

# Newest name first. vLLM V1 (0.9 and later) says kv_cache_usage_perc, V0 gpu_cache_usage_perc.
_RUNNING = ("vllm:num_requests_running",)
_WAITING = ("vllm:num_requests_waiting",)
_KV_USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
_CACHE_CONFIG = "vllm:cache_config_info"
_READ = (*_RUNNING, *_WAITING, *_KV_USAGE, _CACHE_CONFIG)
_NUMBER = re.compile(r"[0-9]{1,12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    """None where the engine does not say. `kv_usage` is a share of its room, 0 to 1.

    `complaint` says what of the page was not understood; empty if nothing.
    """

    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None
    kv_room_tokens: int | None = None
    complaint: str = ""

    @property
    def requests(self) -> int | None:
        """In the engine, running or not; None if it does not say."""
        if self.running is None:
            return None
        return self.running + (self.waiting or 0)


def read_load(page: str) -> EngineLoad:
    """What a /metrics page says."""
    try:
        samples = samples_of(page, _READ)
    except NoExposition as error:
        return EngineLoad(complaint=f"its metrics cannot be read: {error}")
    complaints: list[str] = []
    usage = _usage(samples, complaints)
    return EngineLoad(
        running=_count(samples, _RUNNING, complaints),
        waiting=_count(samples, _WAITING, complaints),
        kv_usage=usage,
        kv_room_tokens=_room(samples),
        complaint="; ".join(complaints),
    )


def _of(samples: Sequence[Sample], names: Sequence[str]) -> list[float]:
    """The values of the first of `names` that the page has; one for each engine of a server."""
    for name in names:
        values = [sample.value for sample in samples if sample.name == name]
        if values:
            return values
    return []


def _count(samples: Sequence[Sample], names: Sequence[str], complaints: list[str]) -> int | None:
    values = _of(samples, names)
    if not values:
        complaints.append(f"no {' or '.join(names)} among its metrics")
        return None
    total = sum(values)
    if not 0 <= total < 1e9:
        complaints.append(f"{names[0]} is {total:g}, which counts nothing")
        return None
    return round(total)


def _usage(samples: Sequence[Sample], complaints: list[str]) -> float | None:
    """Of several engines the fullest: a request needs room in one."""
    values = _of(samples, _KV_USAGE)
    if not values:
        complaints.append(f"no {' or '.join(_KV_USAGE)} among its metrics")
        return None
    worst = max(values)
    if not 0 <= min(values) <= worst <= 1:
        complaints.append(f"a KV cache usage of {worst:g} is no share between 0 and 1")
        return None
    return worst


def _room(samples: Sequence[Sample]) -> int | None:
    """Blocks times their size, of all engines."""
    total = 0
    for sample in samples:
        if sample.name == _CACHE_CONFIG:
            blocks = sample.labels.get("num_gpu_blocks", "")
            size = sample.labels.get("block_size", "")
            if not (_NUMBER.fullmatch(blocks) and _NUMBER.fullmatch(size)):
                return None
            total += int(blocks) * int(size)
    return total or None
