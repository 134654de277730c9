"""Damaged frames of a real run, fed to real stages: refused or run, and nothing stays behind."""

import random
from collections import Counter
from pathlib import Path

import pytest
from frame_mutations import Frames, mutated
from in_memory_network import InMemoryNetwork
from stage_cluster import StageCluster

from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.protocol.data import FrameError, Kind, Message, Reason, decode, encode

LAYERS = {"a": (0, 2), "b": (1, 3), "c": (3, 4)}
HOPS = [("a", 0, 2), ("b", 2, 3), ("c", 3, 4)]
PROMPTS = [list(range(10, 10 + length)) for length in (1, 5, 17, 40)]
_FRAMES_A_TURN = 20
_FRAMES_A_FLOOD = 2000  # then everything is released, and right answers are asked for


class RecordingNetwork(InMemoryNetwork):
    """Keeps the frames of what passes, with sender and receiver, until told to stop."""

    def __init__(self) -> None:
        super().__init__()
        self.recorded: list[tuple[str, str, Frames]] = []
        self.records = True

    def deliver(self, sender: str, peer: str, message: Message) -> None:
        if self.records and message.kind is not Kind.STATUS:
            head, payload = encode(message)
            self.recorded.append((sender, peer, (head, bytes(payload))))
        super().deliver(sender, peer, message)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = TinySizes(
        num_layers=4,
        hidden_size=32,
        intermediate_size=48,
        vocab_size=300,
        max_position_embeddings=128,
    )
    folder = tmp_path_factory.mktemp("fuzz") / "tiny"
    make_tiny_checkpoint(folder, sizes=sizes, seed=3)
    return folder


def answers(cluster: StageCluster, *, first_id: int) -> list[list[int]]:
    wanted = [(first_id + index, 1) for index in range(len(PROMPTS))]
    for (request, _), token_ids in zip(wanted, PROMPTS, strict=True):
        cluster.prompt(request, token_ids, HOPS)
    cluster.run_until(
        lambda: all(
            cluster.answers[key].finished is not Reason.NONE or cluster.answers[key].nacks
            for key in wanted
        )
    )
    assert not any(cluster.answers[key].nacks for key in wanted)
    return [cluster.answers[key].token_ids for key in wanted]


def flood(
    cluster: StageCluster, network: RecordingNetwork, dice: random.Random, *, frames: int
) -> Counter[str]:
    """Damaged frames from whoever sent them whole, or sometimes from somebody else."""
    outcomes: Counter[str] = Counter()
    by_frames = [recorded[2] for recorded in network.recorded]
    ways = [(sender, peer) for sender, peer, _ in network.recorded if peer in cluster.stages]
    touched: set[tuple[int, int]] = set()
    for number in range(frames):
        try:
            message = decode(*mutated(dice, by_frames))
        except FrameError:
            outcomes["refused"] += 1
            continue
        outcomes["decoded"] += 1
        touched |= {(entry.request, entry.epoch) for entry in message.entries}
        sender, peer = dice.choice(ways)
        network.deliver(sender, peer, message)
        if number % _FRAMES_A_TURN == 0:
            cluster.turn()
    for _ in range(5):
        cluster.turn()
    for request, epoch in touched | cluster.answers.keys():
        cluster.release(request, epoch=epoch)
    for _ in range(5):
        cluster.turn()
    cluster.answers.clear()
    return outcomes


def fuzz(checkpoint: Path, *, frames: int, seed: int) -> Counter[str]:
    dice = random.Random(seed)
    network = RecordingNetwork()
    cluster = StageCluster(checkpoint, LAYERS, network=network)
    right = answers(cluster, first_id=1)
    cluster.release_all()
    network.records = False
    outcomes: Counter[str] = Counter()
    while outcomes.total() < frames:
        outcomes += flood(cluster, network, dice, frames=_FRAMES_A_FLOOD)
        for name, stage in cluster.stages.items():
            stage.check_pages()
            assert stage.stats().kv_pages_used == 0, name
        assert answers(cluster, first_id=dice.getrandbits(40) + 100) == right
        cluster.release_all()
        cluster.answers.clear()
    return outcomes


def test_damaged_frames_neither_stop_a_stage_nor_spoil_the_answers_after(checkpoint: Path) -> None:
    outcomes = fuzz(checkpoint, frames=6_000, seed=1)
    assert min(outcomes["refused"], outcomes["decoded"]) > 500


@pytest.mark.chaos
def test_a_million_damaged_frames_neither_stop_a_stage_nor_spoil_an_answer(
    checkpoint: Path,
) -> None:
    outcomes = fuzz(checkpoint, frames=1_000_000, seed=2)
    print(dict(outcomes))
