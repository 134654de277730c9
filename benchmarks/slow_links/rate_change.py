"""A link's rate is cut under load and given back: how soon is that measured, and is anything lost?

    python -m benchmarks.slow_links.rate_change [--parameters FILE.toml]

Needs root (network namespaces). Prints what the sender took the rate for, second by second, and how
long after each change it came within a tenth and stayed there.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.slow_links.start import start, with_sizes
from tests.shaped_links.ends import joined_ends
from tests.shaped_links.network import relayed_link
from tests.shaped_links.shaped_pipe import Shape

_FIRST_PREFILL = 1_000_000
_WARM_UP_S = 1.0
_NEAR = 0.1


def settles_s(
    rates: Sequence[tuple[float, float | None]], rate: float, *, since_s: float, until_s: float
) -> float | None:
    """How long after `since_s` all measured rates up to `until_s` were near `rate`."""
    span = [(at_s, seen) for at_s, seen in rates if since_s <= at_s < until_s]
    settled_s: float | None = None
    for at_s, seen in span:
        if seen is None or abs(seen - rate) > _NEAR * rate:
            settled_s = None
        elif settled_s is None:
            settled_s = at_s - since_s
    return settled_s


def run(parameters: dict[str, Any], control: str) -> None:
    fast, slow = parameters["rate_bytes_per_s"], parameters["cut_bytes_per_s"]
    phase_s, delay_s = parameters["phase_s"], parameters["delay_s"]
    prefills: list[tuple[int, float]] = []
    at_s = _WARM_UP_S
    while at_s < _WARM_UP_S + 3 * phase_s:
        prefills.append((_FIRST_PREFILL + len(prefills), at_s))
        is_cut = _WARM_UP_S + phase_s <= at_s < _WARM_UP_S + 2 * phase_s
        at_s += parameters["prefill_bytes"] / (slow if is_cut else fast)
    decodes = list(range(int((_WARM_UP_S + 3 * phase_s) / parameters["decode_every_s"])))
    order = parameters | {"prefills": prefills, "decodes": decodes}
    there = Shape(rate_bytes_per_s=fast, delay_s=delay_s, queue_bytes=parameters["queue_bytes"])
    with (
        relayed_link(
            a_to_b=there, b_to_a=Shape(delay_s=delay_s), congestion_control=control
        ) as link,
        joined_ends(link) as (sender, receiver),
    ):
        receiver.tell({"expect": [number for number, _ in prefills] + decodes})
        began_s = time.monotonic()
        sender.tell(order)
        changes = []
        for number, rate in ((1, slow), (2, fast)):
            time.sleep(max(0.0, began_s + _WARM_UP_S + number * phase_s - time.monotonic()))
            link.change(a_to_b={"rate_bytes_per_s": rate})
            changes.append((time.monotonic(), rate))
        sent = sender.answer()
        sender.answer()
        came = receiver.answer()["arrivals"]
    rates = [(at_s, rate) for at_s, rate in sent["rates"]]
    end_s = rates[-1][0]
    print(f"\n{control}: Mb/s each second")
    print(" ".join(f"{8e-6 * (rate or 0):.0f}" for _, rate in rates[:: round(1 / 0.05)]))
    for (since_s, rate), until_s in zip(changes, (changes[1][0], end_s), strict=True):
        took_s = settles_s(rates, rate, since_s=since_s, until_s=until_s)
        told = "never" if took_s is None else f"after {took_s:.1f} s"
        print(f"to {8e-6 * rate:.0f} Mb/s: within {_NEAR:.0%} for good {told}")
    print(f"lost: {len(sent['departures']) - len(came)}", flush=True)


def main(argv: list[str]) -> int:
    _, parameters = start(argparse.ArgumentParser(description=__doc__), argv)
    change = with_sizes(parameters, "rate_change")
    for control in change["congestion_controls"]:
        run(change, control)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
