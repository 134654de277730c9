"""Two transports joined by a shaped link that is cut while a prompt is on its way."""

import time
from typing import Any

import pytest

from tests.shaped_links.ends import joined_ends
from tests.shaped_links.network import relayed_link, require_shaping
from tests.shaped_links.shaped_pipe import Shape

RATE_BYTES_PER_S = 2.5e6
PREFILL_BYTES = 2_000_000
FIRST_PREFILL = 1_000_000
DECODE_BYTES = 10_000
CUT_S = 3.0  # longer than heartbeats are waited for: connections break

pytestmark = pytest.mark.processes


@pytest.fixture(autouse=True)
def _shaping() -> None:
    require_shaping()


def test_an_unused_link_is_measured_with_little_of_its_time() -> None:
    shape = Shape(rate_bytes_per_s=RATE_BYTES_PER_S, delay_s=0.02, queue_bytes=300_000)
    with (
        relayed_link(a_to_b=shape, b_to_a=Shape(delay_s=0.02)) as link,
        joined_ends(link) as (sender, _),
    ):
        stats = sender.ask({"measure": 3.0})
        delivered = link.change()["a_to_b"]["delivered_bytes"]
    assert stats["bandwidth_bytes_per_s"] == pytest.approx(RATE_BYTES_PER_S, rel=0.25)
    assert stats["rtt_s"] == pytest.approx(0.04, abs=0.02)
    assert stats["bulk_bytes_total"] == 0
    assert 0 < stats["filler_bytes_total"] <= delivered <= 4.0 * RATE_BYTES_PER_S


def test_a_link_that_is_cut_in_the_middle_of_a_chunk_loses_no_prompt_and_goes_on() -> None:
    shape = Shape(rate_bytes_per_s=RATE_BYTES_PER_S, delay_s=0.01, queue_bytes=300_000)
    order: dict[str, Any] = {
        "prefills": [(FIRST_PREFILL + number, 1.0 + number * 0.1) for number in range(3)],
        "decodes": list(range(60)),
        "decode_every_s": 0.05,
        "prefill_bytes": PREFILL_BYTES,
        "decode_bytes": DECODE_BYTES,
    }
    with (
        relayed_link(a_to_b=shape, b_to_a=Shape(delay_s=0.01)) as link,
        joined_ends(link) as (sender, receiver),
    ):
        receiver.tell({"expect": [number for number, _ in order["prefills"]]})
        sender.tell(order)
        delivered = link.change()["a_to_b"]["delivered_bytes"]
        while delivered < PREFILL_BYTES / 2:
            time.sleep(0.02)
            delivered = link.change()["a_to_b"]["delivered_bytes"]
        link.change(a_to_b={"up": False}, b_to_a={"up": False})
        time.sleep(CUT_S)
        cut = link.change(a_to_b={"up": True}, b_to_a={"up": True})["a_to_b"]
        arrivals = receiver.answer()["arrivals"]
        for _ in ("departures", "stats of then"):
            sender.answer()
        sender.ask(order | {"prefills": [], "decodes": []})
        stats = sender.answer()["b"]
    assert cut["cut"] > 0
    prefills = sorted((at_s, int(name)) for name, at_s in arrivals.items())
    numbers = [number for _, number in prefills if number >= FIRST_PREFILL]
    assert numbers == [FIRST_PREFILL, FIRST_PREFILL + 1, FIRST_PREFILL + 2]
    assert stats["sent_again_total"] > 0
    assert stats["waiting_bytes"] == 0
