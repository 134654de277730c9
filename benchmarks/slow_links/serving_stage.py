"""A stage inside its namespace: real loop, frames and sockets, emulated times, rows of full size.

    python -m benchmarks.slow_links.serving_stage

The only line on stdin is a `StageOrder`; runs until stdin ends, then writes its links' counters.
"""

import gc
import json
import os
import sys
import threading

from pydantic import BaseModel

from benchmarks.slow_links.wide_runner import WideRunner
from planner.domain.model_spec import ModelSpec
from runtime.engine.backend import Opened
from runtime.engine.emulated_runner import EmulatedRunner
from runtime.engine.limits import EngineLimits
from runtime.engine.stage import Stage
from runtime.engine.stage_process import StageProcess
from runtime.protocol.control import PeerAddress
from runtime.protocol.emulation import Emulation
from runtime.protocol.engine_options import EngineOptions
from runtime.transport.link_scheduler import LinkOptions, LinkRule
from runtime.transport.zmq_sockets import KeyPair
from runtime.transport.zmq_transport import ZmqTransport

PAGE_TOKENS = 16
GENERATION = 1


class StageOrder(BaseModel):
    """Layers [first, end) of the model that `emulation` describes."""

    name: str
    bind: str
    secret_key: str
    peers: tuple[PeerAddress, ...]
    first: int
    end: int
    rule: LinkRule
    options: EngineOptions
    emulation: Emulation
    max_batch_tokens: int
    max_context_tokens: int


def hidden_size_of(model: ModelSpec) -> int:
    """Of rows of two bytes an element."""
    return int(model.activation_bytes_per_token) // 2


def main() -> None:
    # what is measured are links, not who else uses the processor
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    order = StageOrder.model_validate_json(sys.stdin.readline())
    ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    transport = ZmqTransport(
        name=order.name,
        bind=order.bind,
        keys=KeyPair.from_secret(order.secret_key),
        peers=order.peers,
        options=LinkOptions(rule=order.rule),
    )
    stage = Stage(
        order.name,
        Opened(
            backend=WideRunner(
                EmulatedRunner(
                    order.emulation, first=order.first, end=order.end, page_tokens=PAGE_TOKENS
                ),
                hidden_size=hidden_size_of(order.emulation.model),
            ),
            limits=EngineLimits(
                page_tokens=PAGE_TOKENS,
                max_batch_tokens=order.max_batch_tokens,
                max_context_tokens=order.max_context_tokens,
            ),
        ),
        transport,
        order.options,
        generation=GENERATION,
        process=StageProcess(link_stats=transport.link_stats),
    )
    gc.freeze()
    stage.run(ended.is_set)
    print(json.dumps({peer: one.model_dump() for peer, one in transport.link_stats().items()}))
    transport.close()


if __name__ == "__main__":
    main()
