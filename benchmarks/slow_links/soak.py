"""Prompts and decodes over a link that changes at random; what must hold all the time is checked.

    python -m benchmarks.slow_links.soak [--minutes 10] [--seed 1]

Needs root (network namespaces). Every few seconds the link gets another rate, delay and loss, or is
cut for up to five seconds. Checked at the end: every prompt and every decode arrived, once and each
kind in order; nothing waits or is under way any more; no process ended. Exit status 1 if not.
"""

import argparse
import json
import random
import sys
import time
from typing import Any

from benchmarks.slow_links.start import start
from tests.shaped_links.ends import joined_ends
from tests.shaped_links.network import RelayedLink, relayed_link
from tests.shaped_links.shaped_pipe import Shape

_FIRST_PREFILL = 1_000_000
_PREFILL_BYTES = 2_000_000
_DECODE_BYTES = 20_000
_PREFILL_EVERY_S = 2.0
_DECODE_EVERY_S = 0.1
_CALM_S = 15.0  # at the end, so that what waits can arrive
_PATIENCE_S = 60.0


def stir(link: RelayedLink, chance: random.Random, *, until_s: float) -> int:
    """Change the link until then; returns how often it was cut."""
    cuts = 0
    while time.monotonic() < until_s:
        shape: dict[str, object] = {
            "rate_bytes_per_s": chance.choice([2.5e6, 5e6, 12.5e6, 50e6]),
            "delay_s": chance.choice([0.001, 0.01, 0.03, 0.1]),
            "loss": chance.choice([0.0, 0.0, 0.001, 0.01]),
        }
        link.change(a_to_b=shape, b_to_a={"delay_s": shape["delay_s"], "loss": shape["loss"]})
        if chance.random() < 0.25:
            link.change(a_to_b={"up": False}, b_to_a={"up": False})
            time.sleep(chance.uniform(0.1, 5.0))
            link.change(a_to_b={"up": True}, b_to_a={"up": True})
            cuts += 1
        time.sleep(chance.uniform(1.0, 6.0))
    link.change(
        a_to_b={"rate_bytes_per_s": 12.5e6, "delay_s": 0.01, "loss": 0.0},
        b_to_a={"delay_s": 0.01, "loss": 0.0},
    )
    return cuts


def wrong_of(sent: dict[str, float], came: dict[str, Any], stats: dict[str, Any]) -> list[str]:
    """What does not hold, in words."""
    wrong = []
    arrived = [int(number) for number in came["arrivals"]]  # in that order
    if came["repeated"]:
        wrong.append(f"{came['repeated']} messages came again")
    for name, is_prompt in (("prompt", True), ("decode", False)):
        numbers = [number for number in arrived if (number >= _FIRST_PREFILL) is is_prompt]
        if numbers != sorted(numbers):
            wrong.append(f"{name}s came out of order")
        departed = {int(number) for number in sent if (int(number) >= _FIRST_PREFILL) is is_prompt}
        wrong += [f"{name} {number} was lost" for number in sorted(departed - set(numbers))]
    if stats["waiting_bytes"] or stats["in_flight_bytes"]:
        wrong.append(f"bytes still wait or are under way: {stats}")
    return wrong


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments, _ = start(parser, argv)
    length_s = 60.0 * arguments.minutes + _CALM_S
    prefills = [
        (_FIRST_PREFILL + number, 1.0 + number * _PREFILL_EVERY_S)
        for number in range(int(length_s / _PREFILL_EVERY_S))
    ]
    order: dict[str, Any] = {
        "prefills": prefills,
        "decodes": list(range(int(length_s / _DECODE_EVERY_S))),
        "decode_every_s": _DECODE_EVERY_S,
        "prefill_bytes": _PREFILL_BYTES,
        "decode_bytes": _DECODE_BYTES,
    }
    calm = Shape(rate_bytes_per_s=12.5e6, delay_s=0.01, queue_bytes=1_000_000)
    with (
        relayed_link(a_to_b=calm, b_to_a=Shape(delay_s=0.01), seed=arguments.seed) as link,
        joined_ends(link) as (sender, receiver),
    ):
        numbers = [number for number, _ in prefills] + order["decodes"]
        receiver.tell({"expect": numbers, "within_s": length_s + _PATIENCE_S})
        sender.tell(order)
        chance = random.Random(arguments.seed)
        cuts = stir(link, chance, until_s=time.monotonic() + length_s - _CALM_S)
        sent = sender.answer()["departures"]
        sender.answer()
        came = receiver.answer()
        time.sleep(1.0)
        sender.ask(order | {"prefills": [], "decodes": []})
        stats = sender.answer()["b"]
        counters = link.change()["a_to_b"]
    decodes = sum(int(number) < _FIRST_PREFILL for number in came["arrivals"])
    print(
        f"{arguments.minutes:g} min, seed {arguments.seed}: {cuts} cuts, {len(prefills)} "
        f"prompts, {decodes} of {len(order['decodes'])} decodes arrived, "
        f"{stats['sent_again_total']} chunks and decodes sent again, "
        f"relay {json.dumps(counters)}"
    )
    wrong = wrong_of(sent, came, stats)
    for sentence in wrong[:20]:
        print(sentence)
    print("every invariant held" if not wrong else f"{len(wrong)} broken")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
