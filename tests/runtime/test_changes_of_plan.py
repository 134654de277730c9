"""Plans that follow one another at random on three nodes, requests under way: no token is wrong."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from changing_stages import ChangingStages
from stage_cluster import GENERATION, StageCluster
from test_generations import LAYERS, LONG, SIZES, budget_bytes, prompt_of

from runtime.models.config import read_config
from runtime.models.tiny_checkpoint import make_tiny_checkpoint
from runtime.protocol.data import Reason
from runtime.protocol.stage_pipe import ReadyEvent

_CHANGES = 5
# a stage with little room preempts the youngest, and does not know what it is told of them later
_BEGUN_ANEW = {
    Reason.PREEMPTED,
    Reason.NO_KV_PAGES,
    Reason.PREFIX_GONE,
    Reason.UNKNOWN_REQUEST,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Layers of each node, and the one way through them."""

    layers: dict[str, range]
    way: list[tuple[str, int, int]]


def placed(dice: random.Random) -> Placed:
    """The nodes in any order, their layers perhaps one more at each end than the way needs."""
    names = dice.sample(["a", "b", "c"], 3)
    borders = [0, *sorted(dice.sample(range(1, LAYERS), 2)), LAYERS]
    layers, way = {}, []
    for name, first, end in zip(names, borders, borders[1:], strict=False):
        more, less = dice.randrange(2), dice.randrange(2)
        layers[name] = range(max(0, first - less), min(LAYERS, end + more))
        way.append((name, first, end))
    return Placed(layers=layers, way=way)


class Life:
    """Stages whose plan changes while requests come."""

    def __init__(self, checkpoint: Path, dice: random.Random) -> None:
        self.dice = dice
        self.plan = placed(dice)
        self.generation = GENERATION
        self.config = read_config(checkpoint)
        budget = budget_bytes(checkpoint, pages=dice.choice([260, 330, 500]))
        self.stages = ChangingStages(
            checkpoint, self.plan.layers, budget_bytes=budget, num_layers=LAYERS
        )

    def come(self, requests: int) -> None:
        for _ in range(requests):
            number = len(self.stages.answers)
            self.stages.prompt(
                number,
                prompt_of(number % 8, 3 + 7 * (number % 8)),
                self.plan.way,
                sampling=LONG,
                generation=self.generation,
            )
            for _ in range(self.dice.randrange(6)):
                self.stages.turn()

    def change(self, number: int) -> None:
        before, self.plan = self.generation, placed(self.dice)
        self.generation += 1
        self.stages.add(self.plan.layers, generation=self.generation)
        self.stages.until_heard(ReadyEvent, times=number)
        self.come(self.dice.randrange(1, 4))
        self.stages.run_all()
        self.stages.retire(before)
        for name, layers in self.plan.layers.items():
            stage = self.stages.stages[name]
            stage.check_pages()
            held = self.config.weights_bytes_of(layers)
            assert stage.stats().weights_bytes == held


def live(checkpoint: Path, alone: Callable[[int], list[int]], *, seed: int) -> None:
    life = Life(checkpoint, random.Random(seed))
    for number in range(1, _CHANGES + 1):
        life.come(life.dice.randrange(1, 4))
        life.change(number)
    right = 0
    for (request, _), answer in life.stages.answers.items():
        if answer.nacks:
            assert {reason for _, reason in answer.nacks} <= _BEGUN_ANEW
        else:
            assert answer.token_ids == alone(request % 8)
            right += 1
    assert right >= _CHANGES
    life.stages.release_all()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("checkpoint")
    make_tiny_checkpoint(directory, sizes=SIZES, seed=3)
    return directory


@pytest.fixture(scope="module")
def alone(checkpoint: Path) -> Callable[[int], list[int]]:
    """The tokens of each prompt on a stage that serves nothing else."""
    cluster = StageCluster(checkpoint, {"solo": (0, LAYERS)}, pages=2000)
    for number in range(8):
        way = [("solo", 0, LAYERS)]
        cluster.prompt(number, prompt_of(number, 3 + 7 * number), way, sampling=LONG)
    cluster.run_all()
    return lambda number: cluster.answers[number, 1].token_ids


@pytest.mark.slow
def test_requests_get_their_tokens_through_five_changes_of_plan(
    checkpoint: Path, alone: Callable[[int], list[int]]
) -> None:
    live(checkpoint, alone, seed=0)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(1, 31))
def test_requests_get_their_tokens_through_many_more_changes_of_plan(
    checkpoint: Path, alone: Callable[[int], list[int]], seed: int
) -> None:
    live(checkpoint, alone, seed=seed)
