"""How full an engine says it is, by the names of all its versions; pure.

vLLM renamed its gauges over time; the names known here are read, others are not
guessed. A page that cannot be read costs nothing but this: routing goes on by its own count.

A page is Prometheus' text format, 0.0.4, read strictly
(https://prometheus.io/docs/instrumenting/exposition_formats/): values and labels, no times.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

MAX_PAGE_BYTES = 4 << 20
MOST_OF_A_NAME = 1024  # lines; no server has so many engines

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\\n]|\\.)*)"\s*(,|$)')
_LINE = re.compile(
    rf'({_NAME})[ \t]*(?:\{{((?:[^"}}]|"(?:[^"\\]|\\.)*")*)\}})?[ \t]+(\S+)(?:[ \t]+-?\d+)?[ \t]*'
)
_BEGINNING = 64 * 1024
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
# Newest name first. vLLM V1 (0.9 and later) says kv_cache_usage_perc, V0 gpu_cache_usage_perc.
_RUNNING = ("vllm:num_requests_running",)
_WAITING = ("vllm:num_requests_waiting",)
_KV_USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
_CACHE_CONFIG = "vllm:cache_config_info"
_READ = (*_RUNNING, *_WAITING, *_KV_USAGE, _CACHE_CONFIG)
_NUMBER = re.compile(r"[0-9]{1,12}")


class NoExposition(Exception):
    """Text that is none of Prometheus'; the message says which line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One line's value."""

    name: str
    labels: Mapping[str, str]
    value: float


def samples_of(page: str, names: Iterable[str]) -> tuple[Sample, ...]:
    """Those of these names, one name after the other; no other line is looked at, so that a page of
    megabytes takes no time, unless there is none of them. Raises NoExposition."""
    found = [
        _sample(page[begin : end if (end := page.find("\n", begin)) >= 0 else None], begin, page)
        for name in names
        for begin in _beginnings(page, name)
    ]
    if not found:
        _check_first(page)
    return tuple(found)


def _beginnings(page: str, name: str) -> Iterator[int]:
    """Where a line begins with the name."""
    count, begin = 0, page.find(name)
    while begin >= 0:
        end = begin + len(name)
        if _begins_line(page, begin) and page[end : end + 1] in ("{", " ", "\t"):
            count += 1
            if count > MOST_OF_A_NAME:
                raise NoExposition(f"more than {MOST_OF_A_NAME} lines of {name}")
            yield begin
        begin = page.find(name, end)


def _begins_line(page: str, at: int) -> bool:
    while at > 0 and page[at - 1] in " \t":
        at -= 1
    return at == 0 or page[at - 1] == "\n"


def _check_first(page: str) -> None:
    """Whether it is such a page at all."""
    for number, line in enumerate(page[:_BEGINNING].splitlines(), start=1):
        text = line.strip()
        if text and not text.startswith("#"):
            _sample(text, number)
            return


def _sample(line: str, place: int, page: str = "") -> Sample:
    """`place`: the line's number or, with `page`, where in that it begins. Raises NoExposition."""
    text = line.strip()
    found = _LINE.fullmatch(text)
    try:
        if found is None:
            raise NoExposition(f"is no metric: {text[:80]!r}")
        name, labels, value = found.groups()
        return Sample(name=name, labels=_labels(labels or ""), value=_number(value))
    except NoExposition as error:
        number = page.count("\n", 0, place) + 1 if page else place
        raise NoExposition(f"line {number} {error}") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise NoExposition(f"has {text[:80]!r}, which is no number") from error


def _labels(text: str) -> dict[str, str]:
    labels: dict[str, str] = {}
    position = 0
    while position < len(text.rstrip()):
        found = _LABEL.match(text, position)
        if found is None:
            raise NoExposition(f"has broken labels: {text[:80]!r}")
        labels[found[1]] = re.sub(
            r"\\.", lambda escape: _ESCAPES.get(escape[0], escape[0]), found[2]
        )
        position = found.end()
    return labels


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
