"""Measures several systems side by side, and prints what was found.

Each repeat measures every system at every number of streams, in an order that turns, so that what
else the machine does is shared by all.
"""

import itertools
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

# `vllm serve` goes on using its core for a part of a second after its last answer.
SETTLES_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One batch of streams. `gaps_s`: between one token of a stream and the next."""

    tokens: int
    seconds: float
    cpu_s: float
    gaps_s: tuple[float, ...] = ()


Measure = Callable[[list[list[int]]], Measured]
Found = dict[tuple[str, int], list[Measured]]  # by system and number of streams


def measure_all(
    systems: Mapping[str, Measure],
    *,
    streams: Sequence[int],
    repeats: int,
    prompt_tokens: int,
    vocabulary: int,
) -> Found:
    """`repeats` of each, after a round that is forgotten."""
    dice = random.Random(1)
    found: Found = {}
    turning = itertools.cycle(range(len(systems)))
    for repeat in range(-1, repeats):
        for count in streams if repeat >= 0 else (1, 2):
            order = list(systems)
            start = next(turning)
            for name in order[start:] + order[:start]:
                # none shares its beginning with another, or with another run
                prompts = [
                    [dice.randrange(4, vocabulary) for _ in range(prompt_tokens)]
                    for _ in range(count)
                ]
                time.sleep(SETTLES_S)
                measured = systems[name](prompts)
                if repeat < 0:
                    continue
                found.setdefault((name, count), []).append(measured)
                print(
                    f"repeat {repeat} {name:22} {count:3} streams "
                    f"{measured.tokens / measured.seconds:8.2f} tokens/s "
                    f"{measured.tokens / measured.cpu_s:8.2f} tokens/CPU s",
                    file=sys.stderr,
                )
    return found


def print_found(found: Found, pairs: Sequence[tuple[str, str]]) -> None:
    """A table of all, and one of the ratios of `pairs`."""
    rates = {key: [one.tokens / one.seconds for one in measured] for key, measured in found.items()}
    cpu_rates = {
        key: statistics.median(one.tokens / one.cpu_s for one in measured)
        for key, measured in found.items()
    }
    medians = {key: statistics.median(each) for key, each in rates.items()}
    print("| system | streams | tokens/s, median (range) | tokens/CPU s | p95 between tokens, ms |")
    print("|---|---|---|---|---|")
    for (system, streams), each in sorted(rates.items(), key=lambda item: item[0][1]):
        gaps_s = sorted(gap for one in found[system, streams] for gap in one.gaps_s)
        p95 = f"{gaps_s[len(gaps_s) * 95 // 100] * 1000:.0f}" if gaps_s else ""
        print(
            f"| {system} | {streams} | {medians[system, streams]:.2f} "
            f"({min(each):.2f} to {max(each):.2f}) | {cpu_rates[system, streams]:.2f} | {p95} |"
        )
    print("\n| streams | " + " | ".join(f"{ours} / {theirs}" for ours, theirs in pairs) + " |")
    print("|---" * (len(pairs) + 1) + "|")
    for streams in sorted({streams for _, streams in found}):
        ratios = (
            f"{medians[ours, streams] / medians[theirs, streams]:.2f} "
            f"({cpu_rates[ours, streams] / cpu_rates[theirs, streams]:.2f} by CPU time)"
            for ours, theirs in pairs
        )
        print(f"| {streams} | {' | '.join(ratios)} |")
