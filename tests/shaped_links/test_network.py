"""The test bed checks itself: a link never gets faster or shorter than it was shaped to be.

Bounds are those that a busy machine cannot break: it makes transfers slower, never faster.
"""

import json
import subprocess
import sys

import pytest

from tests.shaped_links.network import (
    Namespaces,
    ShapingFailed,
    available_congestion_controls,
    relayed_link,
    require_shaping,
    tbf_link,
)
from tests.shaped_links.shaped_pipe import Shape

SIZE = 400_000
RATE_BYTES_PER_S = 4e6
BURST_BYTES = 32_000  # what a token bucket lets through at once


@pytest.fixture(autouse=True)
def _shaping() -> None:
    require_shaping()


def probe(link: Namespaces) -> dict[str, float | str]:
    """What plain TCP from a to b sees."""
    module = (sys.executable, "-m", "tests.shaped_links.probe")
    with link.popen("b", [*module, "serve", link.address("b")]) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        dialled = link.popen("a", [*module, "dial", link.address("b"), str(SIZE)])
        seen, _ = dialled.communicate(timeout=60)
        server.wait(60)
    result: dict[str, float | str] = json.loads(seen)
    return result


@pytest.mark.parametrize("control", ["reno", "bbr"])
def test_a_relayed_link_has_the_rate_the_delay_and_the_congestion_control_asked_for(
    control: str,
) -> None:
    if control not in available_congestion_controls():
        pytest.skip(f"this kernel has no {control}")
    there = Shape(rate_bytes_per_s=RATE_BYTES_PER_S, delay_s=0.02)
    back = Shape(delay_s=0.01)
    with relayed_link(a_to_b=there, b_to_a=back, congestion_control=control) as link:
        seen = probe(link)
        counters = link.change()
    assert float(seen["round_trip_s"]) >= 0.03
    assert float(seen["transfer_s"]) >= SIZE / RATE_BYTES_PER_S + 0.03
    assert seen["congestion_control"] == control
    assert counters["a_to_b"]["delivered_bytes"] > SIZE
    assert counters["a_to_b"]["lost"] == 0


def test_a_token_bucket_link_has_the_rate_asked_for() -> None:
    with tbf_link(rate_bytes_per_s=RATE_BYTES_PER_S) as link:
        seen = probe(link)
    assert float(seen["transfer_s"]) >= (SIZE - BURST_BYTES) / RATE_BYTES_PER_S


def test_losses_and_a_cut_are_what_the_relay_says_and_the_transfer_survives_losses() -> None:
    lossy = Shape(loss=0.02)
    with relayed_link(a_to_b=lossy, b_to_a=Shape(), mtu=1500, seed=5) as link:
        probe(link)
        assert link.change(a_to_b={"up": False})["a_to_b"]["lost"] > 0
        module = [sys.executable, "-c", _ONE_DATAGRAM, link.address("b")]
        with link.popen("a", module, stdin=subprocess.DEVNULL) as sender:
            sender.wait(60)
        assert link.change()["a_to_b"]["cut"] >= 1


_ONE_DATAGRAM = """
import socket, sys
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"anyone?", (sys.argv[1], 9))
"""


def test_a_congestion_control_the_kernel_lacks_is_named() -> None:
    with (
        pytest.raises(ShapingFailed, match="'carrier-pigeon'"),
        relayed_link(a_to_b=Shape(), b_to_a=Shape(), congestion_control="carrier-pigeon"),
    ):
        pass
