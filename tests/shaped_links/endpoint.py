"""One end of the link under test, inside its namespace; `ends` drives it over its pipes.

    python -m tests.shaped_links.endpoint NAME

The first line on stdin is `{"secret_key", "bind", "rule", "security"}`, the answer
the endpoint's address; the second the address of the other end. Then the receiving end gets
`{"expect": numbers}` and answers with when messages arrived, once those have. At
`{"measure": seconds}` a link is measured that nothing is sent over, and what is then known of it is
the answer. Else the sending end gets a schedule and answers with when it sent what and which rates
of the link it measured at each decode, then with what it knows of the link. Times are
CLOCK_MONOTONIC, which both ends share.
"""

import gc
import heapq
import json
import os
import sys
import time
from typing import Any

from runtime.protocol.control import PeerAddress
from runtime.protocol.data import DType, Entry, Flag, Kind, MeasureOrder, Message
from runtime.protocol.data_security import DataSecurity
from runtime.transport.link_scheduler import LinkOptions, LinkRule
from runtime.transport.zmq_sockets import KeyPair
from runtime.transport.zmq_transport import ZmqTransport

PATIENCE_S = 120.0  # where an order does not say `within_s`


def message(number: int, size: int, flags: Flag) -> Message:
    """Rows of one token each, 2-byte elements."""
    entry = Entry(request=number, epoch=0, position=0, n_tokens=1, hop=1, flags=flags)
    return Message(
        kind=Kind.ROWS,
        generation=1,
        entries=(entry,),
        dtype=DType.FLOAT16,
        payload=bytes(size),
    )


def receive(
    transport: ZmqTransport, expected: list[int], *, within_s: float
) -> dict[str, dict[int, float] | int]:
    """When which message was there first, until the expected ones are, or patience ends; and how
    many came again."""
    arrivals: dict[int, float] = {}
    missing, repeated = set(expected), 0
    deadline_s = time.monotonic() + within_s
    while missing and time.monotonic() < deadline_s:
        for received in transport.receive(timeout_s=0.5):
            number = received.message.entries[0].request
            repeated += number in arrivals
            arrivals.setdefault(number, time.monotonic())
            missing.discard(number)
    return {"arrivals": arrivals, "repeated": repeated}


def send(
    transport: ZmqTransport, order: dict[str, Any], other: str
) -> dict[str, dict[int, float] | list[tuple[float, float | None]]]:
    """When which message was handed over, and the rates measured. `decodes` go every
    `decode_every_s`, a prompt's rows at the moment beside its number in `prefills`."""
    departures: dict[int, float] = {}
    rates: list[tuple[float, float | None]] = []
    began_s = time.monotonic() + 0.1
    period_s = order["decode_every_s"]
    plan = [(began_s + at_s, number, True) for number, at_s in order["prefills"]]
    plan += [(began_s + k * period_s, number, False) for k, number in enumerate(order["decodes"])]
    heapq.heapify(plan)
    messages = {
        number: message(number, order["prefill_bytes"], Flag.PREFILL)
        for number, _ in order["prefills"]
    }
    messages |= {n: message(n, order["decode_bytes"], Flag.NONE) for n in order["decodes"]}
    while plan:
        at_s, number, is_prefill = heapq.heappop(plan)
        time.sleep(max(0.0, at_s - time.monotonic()))
        departures[number] = time.monotonic()
        transport.send(other, messages.pop(number))
        if not is_prefill:
            rate = transport.link_stats()[other].bandwidth_bytes_per_s
            rates.append((departures[number], rate))
    return {"departures": departures, "rates": rates}


def measure(transport: ZmqTransport, other: str, *, seconds: float) -> dict[str, Any]:
    """What is known of the link when all that filled it has been answered."""
    order = MeasureOrder(peer=other, most_bytes=32_000_000, most_s=seconds)
    if not transport.measure(order):
        raise RuntimeError("the link is in use")
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        stats = transport.link_stats()[other]
        if stats.bandwidth_bytes_per_s and stats.waiting_bytes + stats.in_flight_bytes == 0:
            break
        time.sleep(0.05)
    return stats.model_dump()


def main(name: str) -> None:
    other = "b" if name == "a" else "a"
    # what is measured is the link, not who else uses the processor
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    gc.freeze()
    start = json.loads(sys.stdin.readline())
    options = LinkOptions(rule=LinkRule(start["rule"]))
    keys = KeyPair.from_secret(start["secret_key"])
    transport = ZmqTransport(
        name=name,
        bind=start["bind"],
        keys=keys,
        options=options,
        security=DataSecurity(start["security"]),
    )
    answer({"endpoint": transport.endpoint})
    for line in sys.stdin:
        order = json.loads(line)
        if "peer" in order:
            transport.set_peers([PeerAddress(name=other, **order["peer"])])
            answer({})
        elif "expect" in order:
            within_s = order.get("within_s", PATIENCE_S)
            answer(receive(transport, order["expect"], within_s=within_s))
        elif "measure" in order:
            answer(measure(transport, other, seconds=order["measure"]))
        else:
            answer(send(transport, order, other))
            answer({peer: one.model_dump() for peer, one in transport.link_stats().items()})
    transport.close()


def answer(what: object) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
