"""Real stages behind the interface of `ScriptedStages`, with a checkpoint that they share."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from coordinator_doubles import RANGES, see
from coordinator_rig import Rig, with_coordinator
from stage_cluster import StageCluster

from runtime.coordinator.dispatcher import Dispatcher
from runtime.models.tiny_checkpoint import Dialogue, TinySizes, make_tiny_checkpoint
from runtime.protocol.data import Message

CONTEXT_TOKENS = 1024
# merges such as `"}}` come from these texts
_JSON_TEXTS = (
    '{"kind":"red"}',
    '{"in":{"kind":"blue"}}',
    '{"in":{"kind":"red"}}',
    '{"on":[{"of":["red","blue"]}]}',
)


def make_checkpoint(directory: Path) -> Path:
    """Six layers with random weights; some tokens are several characters of JSON."""
    make_tiny_checkpoint(
        directory,
        sizes=TinySizes(
            num_layers=6,
            hidden_size=16,
            intermediate_size=32,
            num_heads=2,
            num_kv_heads=1,
            vocab_size=320,
            max_position_embeddings=CONTEXT_TOKENS,
        ),
        seed=2,
        dialogues=tuple(Dialogue(question="Which?", answer=text) for text in _JSON_TEXTS),
    )
    return directory


class RealStages:
    """The stages of the plan of `serving_plan`, driven by `step`."""

    def __init__(self, checkpoint: Path) -> None:
        self.cluster = StageCluster(
            checkpoint,
            RANGES,
            pages=6 * CONTEXT_TOKENS,
            max_batch_tokens=256,
            max_context_tokens=CONTEXT_TOKENS,
        )
        self.dispatcher: Dispatcher | None = None

    def send(self, peer: str, message: Message) -> None:
        self.cluster.coordinator.send(peer, message)

    def report(self, *, pages: int) -> None:
        """Let every stage announce itself; they have the pages they have."""
        assert self.dispatcher is not None
        assert self.dispatcher.serving is not None
        see(self.dispatcher, *RANGES)
        while self.dispatcher.serving.missing_nodes():
            self.step()

    def step(self) -> None:
        """One turn of every stage, then the coordinator reads what they sent."""
        assert self.dispatcher is not None
        for stage in self.cluster.stages.values():
            turns = iter((False, True))
            stage.run(lambda turns=turns: next(turns))
        for received in self.cluster.coordinator.receive(timeout_s=0):
            self.dispatcher.receive(received)

    @property
    def nodes_with_pages(self) -> set[str]:
        stages = self.cluster.stages.items()
        return {name for name, stage in stages if stage.stats().kv_pages_used}


def with_real_stages(checkpoint: Path, visit: Callable[[Rig], Awaitable[None]]) -> None:
    """Visit a coordinator over real stages, which must hold nothing afterwards."""

    async def run(h: Rig) -> None:
        await visit(h)
        await h.until(lambda: not h.stages.nodes_with_pages)
        h.assert_idle()

    with_coordinator(
        checkpoint,
        run,
        stages=RealStages(checkpoint),
        max_context_tokens=CONTEXT_TOKENS,
        max_queued_requests=100,
    )
