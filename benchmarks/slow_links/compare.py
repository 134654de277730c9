"""Decodes during a prompt's transfer over a slow link: ours beside FIFO and unscheduled sending.

    python -m benchmarks.slow_links.compare [--parameters FILE.toml] [--only NAME] [--rules RULE...]

Needs root (network namespaces). Prints one line for each network and rule.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.slow_links.start import start
from tests.shaped_links.ends import joined_ends
from tests.shaped_links.network import RelayedLink, relayed_link
from tests.shaped_links.shaped_pipe import Shape

_FIRST_PREFILL = 1_000_000
_WARM_UP_S = 2.0  # connections are made and keys exchanged


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of one run; latencies of decodes in seconds, transfers of prompts too."""

    decodes: tuple[float, ...]  # sent while a prompt was in transfer
    prefills: tuple[float, ...]
    lost: int


def run(
    link: RelayedLink, rule: str, parameters: dict[str, Any], *, prefills: int, decodes: bool
) -> tuple[Figures, dict[str, Any]]:
    """A fresh pair of processes; every second of the schedule is the same for every rule."""
    gap_s = parameters["prefill_every_s"]
    count = int((_WARM_UP_S + max(1, prefills) * gap_s) / parameters["decode_every_s"])
    order = {
        "prefills": [(_FIRST_PREFILL + k, _WARM_UP_S + k * gap_s) for k in range(prefills)],
        "decodes": list(range(count)) if decodes else [],
        "prefill_bytes": parameters["prefill_bytes"],
        "decode_bytes": parameters["decode_bytes"],
        "decode_every_s": parameters["decode_every_s"],
    }
    with joined_ends(link, rule=rule) as (sender, receiver):
        numbers = [number for number, _ in order["prefills"]] + order["decodes"]
        receiver.tell({"expect": numbers})
        sent = _numbered(sender.ask(order)["departures"])
        stats = sender.answer()
        came = _numbered(receiver.answer()["arrivals"])
    transfers = [
        (sent[number], came[number]) for number in sent if number >= _FIRST_PREFILL
        and number in came
    ]  # fmt: skip
    spans = transfers or [(min(sent.values()) + _WARM_UP_S, float("inf"))]
    return Figures(
        decodes=tuple(
            came[number] - sent[number]
            for number in sent
            if number < _FIRST_PREFILL
            and number in came
            and any(since <= sent[number] < until for since, until in spans)
        ),
        prefills=tuple(until - since for since, until in transfers),
        lost=len(sent) - len(came),
    ), stats["b"]


def _numbered(times: dict[str, float]) -> dict[int, float]:
    return {int(number): moment for number, moment in times.items()}


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest rank; of nothing: not a number."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else float("nan")


def compare(network: dict[str, Any], parameters: dict[str, Any]) -> None:
    """Print one line for each rule: medians over the repeats, spread of the worst decode.

    What `network` says of sizes and times counts for it in place of `parameters`.
    """
    parameters = parameters | network
    there = Shape(
        rate_bytes_per_s=network["rate_bytes_per_s"],
        delay_s=network["delay_s"],
        loss=network["loss"],
        queue_bytes=network["queue_bytes"],
    )
    print(f"\n{network['name']}: milliseconds of decodes during prompts, seconds of prompts")
    print(f"{'':22}  p50   p95   worst (of repeats)     prompt  alone  x alone  lost")
    for rule in parameters["rules"]:
        rows = []
        for repeat in range(parameters["repeats"]):
            with relayed_link(
                a_to_b=there,
                b_to_a=Shape(delay_s=network["delay_s"], queue_bytes=network["queue_bytes"]),
                congestion_control=network["congestion_control"],
                seed=repeat,
            ) as link:
                idle, _ = run(link, rule, parameters, prefills=0, decodes=True)
                alone, _ = run(
                    link, rule, parameters, prefills=parameters["prefills"], decodes=False
                )
                both, stats = run(
                    link, rule, parameters, prefills=parameters["prefills"], decodes=True
                )
            rows.append((idle, alone, both, stats))
        _print_row("idle link", [row[0] for row in rows], [])
        _print_row(rule, [row[2] for row in rows], [row[1] for row in rows])
        rates = [row[3]["bandwidth_bytes_per_s"] for row in rows]
        print(f"{'':22}  measured Mb/s: {', '.join(f'{(r or 0) * 8e-6:.1f}' for r in rates)}")


def _print_row(name: str, runs: list[Figures], alone: list[Figures]) -> None:
    def ms(share: float) -> float:
        return 1e3 * statistics.median(percentile(one.decodes, share) for one in runs)

    worst = sorted(1e3 * max(one.decodes, default=float("nan")) for one in runs)
    line = f"{name:22} {ms(0.5):5.0f} {ms(0.95):5.0f}   {statistics.median(worst):5.0f} "
    line += f"({worst[0]:.0f}-{worst[-1]:.0f})".ljust(14)
    if alone:
        with_decodes = statistics.median(percentile(one.prefills, 0.5) for one in runs)
        by_itself = statistics.median(percentile(one.prefills, 0.5) for one in alone)
        line += f"  {with_decodes:7.2f} {by_itself:6.2f} {with_decodes / by_itself:7.2f}"
        line += f" {sum(one.lost for one in (*runs, *alone)):6d}"
    print(line, flush=True)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="networks whose name holds this")
    parser.add_argument("--rules", nargs="+", help="instead of the parameters' rules")
    arguments, parameters = start(parser, argv)
    parameters["rules"] = arguments.rules or parameters["rules"]
    for network in parameters["networks"]:
        if arguments.only in network["name"]:
            compare(network, parameters)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
