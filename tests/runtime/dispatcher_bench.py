"""A dispatcher with scripted stages that are up, and short ways to use it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from coordinator_doubles import RANGES, Clock, ScriptedStages, make_dispatcher, make_serving

from runtime.coordinator.dispatcher import Dispatcher
from runtime.coordinator.live_request import Delta, LiveRequest
from runtime.coordinator.serving import Serving
from runtime.protocol.data import Sampling

HELLO = list(range(10, 20))
EOS = 257


def endless(prompt: list[int]) -> Iterator[int]:
    return iter([60 + index % 20 for index in range(300)])


class Bench:
    """A dispatcher with its stages up, and short ways to use it."""

    def __init__(self, checkpoint: Path, *, pages: int = 10_000, **plan: object) -> None:
        self.clock = Clock()
        self.stages = ScriptedStages(endless)
        self.dispatcher: Dispatcher
        self.dispatcher, self.stats = make_dispatcher(self.stages, clock=self.clock)
        self.serving: Serving = make_serving(checkpoint, **plan)
        self.dispatcher.serve(self.serving)
        self.stages.report(pages=pages)

    def submit(
        self,
        *,
        max_tokens: int = 20,
        stop: tuple[str, ...] = (),
        owner: str = "",
        priority: int = 0,
        **sampling: float,
    ) -> LiveRequest:
        return self.dispatcher.submit(
            self.serving,
            prompt_ids=HELLO,
            sampling=Sampling(
                temperature=0,
                top_p=1,
                top_k=0,
                seed=1,
                max_tokens=max_tokens,
                stop_token_ids=(EOS,),
                **sampling,
            ),
            stop_strings=stop,
            owner=owner,
            priority=priority,
        )

    def fill(self, *, max_tokens: int = 20) -> list[LiveRequest]:
        """As many requests as the pipelines and the queue of 2 take."""
        accepted = []
        while self.dispatcher.requests_waiting < 2:
            accepted.append(self.submit(max_tokens=max_tokens))
        return accepted

    def run(self) -> None:
        while self.stages.step():
            self.clock.now += 0.01

    def assert_everything_is_given_back(self) -> None:
        assert self.dispatcher.requests_running == self.dispatcher.requests_waiting == 0
        assert all(self.serving.kv.used_token_layers(node) == 0 for node in RANGES)
        assert not self.stages.nodes_with_pages


def drain(request: LiveRequest) -> list[Delta]:
    """What the answering task would see, without waiting. Raises RequestFailed."""
    deltas: list[Delta] = []
    while not deltas or deltas[-1].finish_reason is None:
        more = request.take()
        if not more:
            pytest.fail(f"request {request.id} has not ended; {len(deltas)} tokens so far")
        deltas += more
    return deltas
