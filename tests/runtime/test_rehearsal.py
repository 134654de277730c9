"""What a stage does beside its layers is measured by serving with one."""

import itertools
import operator
from pathlib import Path

import pytest

from runtime.checkpoints.weight_source import WeightSource
from runtime.engine.helix_engine import HelixEngine
from runtime.engine.limits import EngineLimits
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.profiler import rehearsal
from runtime.profiler.rehearsal import Beside, NoAnswer, Turn, beside, rehearse

LIMITS = EngineLimits(page_tokens=4, max_batch_tokens=64, max_context_tokens=12)
TICK_S = 1000.0  # of a clock that goes on whenever it is looked at


def rehearsed(checkpoint: Path) -> Beside:
    ticks = itertools.count()
    return rehearse(
        checkpoint,
        HelixEngine(WeightSource(folder=checkpoint)),
        limits=LIMITS,
        clock=lambda: next(ticks) * TICK_S,
        rest_s=0.0,
    )


@pytest.mark.processes
def test_a_real_stage_is_served_with_and_its_turns_are_timed(tmp_path: Path) -> None:
    make_tiny_checkpoint(tmp_path, sizes=TinySizes(num_layers=3), seed=1)
    found = rehearsed(tmp_path)
    # The clock is asked as rows are taken, thrice within the step, and before each of two sends.
    assert found.head_s == pytest.approx(TICK_S)
    assert found.handling_s == pytest.approx(5 * TICK_S - 2 * TICK_S)
    assert found.hop_s == 0  # rounds take real time, far less than this clock says of the turns


def test_a_round_is_the_turn_of_the_stage_and_a_hop_at_either_end() -> None:
    turns = [Turn(layers_s=1.0, head_s=head_s, whole_s=2.0 + head_s) for head_s in (0.5, 0.25, 4.0)]
    found = beside(turns, [2.5 + 0.4, 2.25 + 0.6, 6.0])
    assert (found.head_s, found.handling_s) == (0.5, 1.0)
    assert found.hop_s == pytest.approx(0.2)


def test_a_model_that_has_no_two_stages_needs_no_hop(tmp_path: Path) -> None:
    make_tiny_checkpoint(tmp_path, sizes=TinySizes(num_layers=1), seed=1)
    assert rehearsed(tmp_path) == Beside(head_s=0.0, handling_s=0.0, hop_s=0.0)


@pytest.mark.processes
def test_a_process_that_ends_early_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tiny_checkpoint(tmp_path, sizes=TinySizes(num_layers=2), seed=1)
    monkeypatch.setattr(rehearsal, "play", operator.is_)  # a process that plays nothing
    with pytest.raises(NoAnswer, match="neighbours"):
        rehearsed(tmp_path)
