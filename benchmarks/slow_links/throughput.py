"""What encryption costs on a fast link, and how many bytes a token weighs on the wire.

    python -m benchmarks.slow_links.throughput [--parameters FILE.toml]

Needs root (network namespaces). Prompts follow one another over a token bucket, encrypted and in
clear in turn; then prompts and decodes go over a relay that counts the bytes of all packets.
"""

import argparse
import statistics
import sys
from typing import Any

from benchmarks.slow_links.start import start, with_sizes
from runtime.protocol.data_security import DataSecurity
from tests.shaped_links.ends import joined_ends
from tests.shaped_links.network import Namespaces, relayed_link, tbf_link
from tests.shaped_links.shaped_pipe import Shape

_FIRST_PREFILL = 1_000_000
_WARM_UP_S = 1.0
_TCP_IP_BYTES = 52  # of a packet: IPv4 20, TCP 20 and its time stamps 12


def exchange(
    link: Namespaces, security: DataSecurity, *, prefills: int, decodes: int, sizes: dict[str, Any]
) -> tuple[dict[int, float], dict[int, float]]:
    """When messages departed and arrived, by number; prompts all at once."""
    order = sizes | {
        "prefills": [(_FIRST_PREFILL + number, _WARM_UP_S) for number in range(prefills)],
        "decodes": list(range(decodes)),
    }
    with joined_ends(link, security=security) as (sender, receiver):
        receiver.tell({"expect": [number for number, _ in order["prefills"]] + order["decodes"]})
        sent = sender.ask(order)["departures"]
        sender.answer()
        came = receiver.answer()["arrivals"]
    return (
        {int(number): at_s for number, at_s in sent.items()},
        {int(number): at_s for number, at_s in came.items()},
    )


def bytes_per_s(
    link: Namespaces, security: DataSecurity, *, prefills: int, sizes: dict[str, Any]
) -> float:
    """Of all prompts after the first, which meets a link that was never measured."""
    _, came = exchange(link, security, prefills=prefills, decodes=0, sizes=sizes)
    arrivals = sorted(came.values())
    return float(sizes["prefill_bytes"] * (len(arrivals) - 1) / (arrivals[-1] - arrivals[0]))


def compare_security(parameters: dict[str, Any]) -> None:
    rates: dict[DataSecurity, list[float]] = {security: [] for security in DataSecurity}
    with tbf_link(rate_bytes_per_s=parameters["rate_bytes_per_s"]) as link:
        for _ in range(parameters["repeats"]):
            for security, seen in rates.items():
                seen.append(
                    bytes_per_s(link, security, prefills=parameters["prefills"], sizes=parameters)
                )
    for security, seen in rates.items():
        figures = ", ".join(f"{8e-6 * rate:.0f}" for rate in seen)
        print(f"{security:6} {8e-6 * statistics.median(seen):7.0f} Mb/s ({figures})")
    ratio = statistics.median(rates[DataSecurity.CURVE]) / statistics.median(
        rates[DataSecurity.CLEAR]
    )
    print(f"encrypted / in clear: {ratio:.3f}")


def weigh(security: DataSecurity, *, mtu: int, sizes: dict[str, Any]) -> None:
    """Bytes of all packets, those that were sent again and handshakes included; without TCP's and
    IP's headers they are ours: heads of messages and chunks, ZeroMQ's frames, encryption."""
    shape = Shape(rate_bytes_per_s=12.5e6, delay_s=0.001, queue_bytes=2_000_000)
    for name, prefills, decodes in (("prompts", 4, 0), ("decodes", 0, 200)):
        with relayed_link(a_to_b=shape, b_to_a=Shape(delay_s=0.001), mtu=mtu) as link:
            exchange(link, security, prefills=prefills, decodes=decodes, sizes=sizes)
            counters = link.change()
        payload = prefills * sizes["prefill_bytes"] + decodes * sizes["decode_bytes"]
        there = counters["a_to_b"]
        ours = there["delivered_bytes"] - _TCP_IP_BYTES * there["delivered"]
        print(
            f"{name}, {security}, MTU {mtu}, of hidden size x element size: "
            f"{ours / payload:.4f} without TCP and IP, {there['delivered_bytes'] / payload:.4f} "
            f"with them, {counters['b_to_a']['delivered_bytes'] / payload:.4f} come back (acks)"
        )


def main(argv: list[str]) -> int:
    _, parameters = start(argparse.ArgumentParser(description=__doc__), argv)
    throughput = with_sizes(parameters, "throughput")
    compare_security(throughput)
    for mtu in throughput["mtus"]:
        weigh(DataSecurity.CURVE, mtu=mtu, sizes=throughput)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
