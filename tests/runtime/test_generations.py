"""One stage process serves two generations of a plan: no token changes, no layer is held twice."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from changing_stages import CONTEXT_TOKENS, NEXT, STEP_TOKENS, ChangingStages
from engine_under_test import HEAD_SIZE, IS_VLLM, vllm_bytes
from safetensors.torch import load_file, save_file
from stage_cluster import GENERATION, GREEDY, PAGE_TOKENS, StageCluster

from runtime.engine.kv_cache import page_bytes
from runtime.engine.limits import EngineLimits
from runtime.engine.memory import activation_bytes
from runtime.models.config import read_config
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.protocol.data import Kind, Message, Reason
from runtime.protocol.stage_pipe import CannotAddEvent, LoadingEvent, ReadyEvent, RetiredEvent

LAYERS = 8
SIZES = TinySizes(
    num_layers=LAYERS,
    hidden_size=32,
    head_size=HEAD_SIZE,
    intermediate_size=64,
    vocab_size=300,
    max_position_embeddings=CONTEXT_TOKENS,
)
LIMITS = EngineLimits(
    page_tokens=PAGE_TOKENS, max_batch_tokens=STEP_TOKENS, max_context_tokens=CONTEXT_TOKENS
)
# in the next plan "a" holds [2, 8), "b" what was the beginning of "a"
BEFORE = {"a": range(4), "b": range(4, LAYERS)}
AFTER = {"a": range(2, LAYERS), "b": range(2)}
WAY_BEFORE = [("a", 0, 4), ("b", 4, LAYERS)]
WAY_AFTER = [("b", 0, 2), ("a", 2, LAYERS)]
ROOM = LAYERS * LIMITS.context_pages + 40  # pages beside all layers
LONG = replace(GREEDY, max_tokens=40)


@pytest.fixture(scope="module")
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("checkpoint")
    sizes = replace(SIZES, tie_word_embeddings=getattr(request, "param", False))
    make_tiny_checkpoint(directory, sizes=sizes, seed=3)
    return directory


def prompt_of(request: int, length: int) -> list[int]:
    return np.random.default_rng(request).integers(5, 300, length).tolist()


def budget_bytes(checkpoint: Path, *, pages: int = ROOM) -> int:
    """So much that as many pages fit beside all layers of the model."""
    config = read_config(checkpoint)
    return (
        config.weights_bytes(0, LAYERS)
        + activation_bytes(config, LIMITS, has_head=True)
        + pages * page_bytes(config, page_tokens=PAGE_TOKENS)
    )


def stages_before(checkpoint: Path, **changes: int) -> ChangingStages:
    budget = budget_bytes(checkpoint, **changes)
    return ChangingStages(checkpoint, BEFORE, budget_bytes=budget, num_layers=LAYERS)


@pytest.fixture(scope="module")
def alone(checkpoint: Path) -> Callable[[int, int], list[int]]:
    """The tokens of a stage that was started for the whole model and serves nothing else."""

    def answer(request: int, length: int) -> list[int]:
        cluster = StageCluster(checkpoint, {"solo": (0, LAYERS)})
        cluster.prompt(request, prompt_of(request, length), [("solo", 0, LAYERS)], sampling=LONG)
        cluster.run_all()
        return cluster.answers[request, 1].token_ids

    return answer


def held_bytes(cluster: ChangingStages, name: str) -> int:
    """Of the weights that the stage has in memory, each tensor once."""
    runner = cluster.opened[name].backend._runner  # type: ignore[attr-defined]
    if IS_VLLM:
        return vllm_bytes(runner)
    decoder = runner.decoder
    tables = (decoder.embedding_VD, decoder.final_norm_D, decoder.head_VD)
    layers = (tensor for layer in decoder.layers.values() for tensor in layer.tensors().values())
    held = (tensor for tensor in (*tables, *layers) if tensor is not None)
    return sum({tensor.data_ptr(): tensor.nbytes for tensor in held}.values())


@pytest.mark.parametrize("checkpoint", [False, True], ids=["untied", "tied"], indirect=True)
def test_requests_of_both_generations_get_their_tokens_while_pages_and_layers_change(
    checkpoint: Path, alone: Callable[[int, int], list[int]]
) -> None:
    config = read_config(checkpoint)
    cluster = stages_before(checkpoint)
    pages_before = cluster.stages["a"].stats().kv_pages_total
    cluster.prompt(1, prompt_of(1, 30), WAY_BEFORE, sampling=LONG)
    cluster.run_until(lambda: len(cluster.answers[1, 1].token_ids) == 3)
    cluster.add(AFTER)
    cluster.until_heard(ReadyEvent)
    for name in ("a", "b"):
        assert {event.generation for event in cluster.heard(name, LoadingEvent)} == {NEXT}
    stats = cluster.stages["a"].stats()
    assert stats.kv_pages_total == ROOM < pages_before
    assert stats.weights_bytes == held_bytes(cluster, "a") == config.weights_bytes(0, LAYERS)
    cluster.prompt(3, prompt_of(3, 9), WAY_BEFORE, sampling=LONG)
    cluster.run_until(lambda: len(cluster.answers[3, 1].token_ids) > 5)
    cluster.prompt(2, prompt_of(2, 21), WAY_AFTER, sampling=LONG, generation=NEXT)
    cluster.run_until(lambda: cluster.answers[1, 1].finished and cluster.answers[3, 1].finished)
    cluster.retire(GENERATION)
    assert cluster.answers[2, 1].finished is Reason.NONE
    for name, layers in AFTER.items():
        assert cluster.heard(name, RetiredEvent) == [RetiredEvent(generation=GENERATION)]
        stats = cluster.stages[name].stats()
        held = config.weights_bytes(layers.start, layers.stop)
        assert stats.weights_bytes == held_bytes(cluster, name) == held
        assert stats.kv_pages_total > ROOM
    cluster.prompt(4, prompt_of(4, 40), WAY_AFTER, sampling=LONG, generation=NEXT)
    cluster.run_all()
    for request, length in ((1, 30), (2, 21), (3, 9), (4, 40)):
        assert cluster.answers[request, 1].token_ids == alone(request, length)
    cluster.release_all()


def test_going_back_finds_layers_that_are_still_there_and_loads_the_others_anew(
    checkpoint: Path, alone: Callable[[int, int], list[int]]
) -> None:
    cluster = stages_before(checkpoint)
    pages_before = cluster.stages["b"].stats().kv_pages_total
    cluster.add(AFTER)
    cluster.until_heard(ReadyEvent)
    cluster.retire(GENERATION)
    cluster.add(BEFORE, generation=NEXT + 1)
    cluster.until_heard(ReadyEvent, times=2)
    cluster.retire(NEXT)
    cluster.prompt(1, prompt_of(1, 30), WAY_BEFORE, sampling=LONG, generation=NEXT + 1)
    cluster.run_all()
    assert cluster.answers[1, 1].token_ids == alone(1, 30)
    config = read_config(checkpoint)
    for name, layers in BEFORE.items():
        assert held_bytes(cluster, name) == config.weights_bytes(layers.start, layers.stop)
    assert cluster.stages["b"].stats().kv_pages_total == pages_before
    cluster.release_all()


def test_a_retired_generation_is_refused_and_what_still_ran_under_it_is_forgotten(
    checkpoint: Path,
) -> None:
    cluster = stages_before(checkpoint)
    cluster.add(AFTER)
    cluster.until_heard(ReadyEvent)
    cluster.prompt(1, prompt_of(1, 30), WAY_BEFORE, sampling=LONG)
    cluster.run_until(lambda: len(cluster.answers[1, 1].token_ids) == 3)
    cluster.retire(GENERATION, sender="b")  # not a stage's to say
    cluster.retire(NEXT + 5)  # unknown
    cluster.coordinator.send("a", Message(kind=Kind.RETIRE, generation=GENERATION, payload=b"?"))
    cluster.turn()
    assert cluster.heard("a", RetiredEvent) == []
    cluster.retire(GENERATION)
    cluster.retire(GENERATION)  # said again, since it might have been lost
    for name in ("a", "b"):
        assert len(cluster.heard(name, RetiredEvent)) == 1
        assert cluster.stages[name].stats().sequences == 0
    assert cluster.answers[1, 1].nacks == []
    cluster.prompt(2, prompt_of(2, 5), WAY_BEFORE)
    cluster.run_until(lambda: bool(cluster.answers[2, 1].nacks))
    assert cluster.answers[2, 1].nacks == [("a", Reason.WRONG_GENERATION)]
    cluster.release_all()


def test_the_coordinator_hears_of_every_generation_and_of_the_pages_they_share(
    checkpoint: Path,
) -> None:
    cluster = stages_before(checkpoint)
    cluster.add({"a": AFTER["a"]})
    cluster.until(lambda: bool(cluster.heard("a", ReadyEvent)))
    both = {number: cluster.told["a", number] for number in (GENERATION, NEXT)}
    assert {number: (each.first, each.end) for number, each in both.items()} == {
        GENERATION: (0, 4),
        NEXT: (2, LAYERS),
    }
    assert {each.pages_total for each in both.values()} == {ROOM}


def test_the_youngest_requests_give_way_where_layers_need_their_pages(
    checkpoint: Path, alone: Callable[[int, int], list[int]]
) -> None:
    least = LIMITS.context_pages * len(AFTER["a"])  # of the longest request
    cluster = stages_before(checkpoint, pages=least)
    youngest = -1
    while cluster.stages["a"].stats().kv_pages_used <= least:
        youngest += 1
        cluster.prompt(youngest, prompt_of(youngest, 30), WAY_BEFORE, sampling=LONG)
        cluster.run_until(lambda number=youngest: bool(cluster.answers[number, 1].token_ids))
    cluster.add({"a": AFTER["a"]})
    cluster.until(lambda: bool(cluster.heard("a", ReadyEvent)))
    cluster.run_all()
    assert cluster.answers[0, 1].nacks == []
    assert cluster.answers[youngest, 1].nacks == [("a", Reason.PREEMPTED)]
    assert cluster.answers[0, 1].token_ids == alone(0, 30)
    cluster.release_all()


def test_layers_that_do_not_fit_beside_are_refused_and_the_others_go_on(
    checkpoint: Path, alone: Callable[[int, int], list[int]]
) -> None:
    least = LIMITS.context_pages * len(AFTER["a"])
    cluster = stages_before(checkpoint, pages=least - 1)
    pages = cluster.stages["a"].stats().kv_pages_total
    cluster.add({"a": AFTER["a"]})
    cluster.prompt(1, prompt_of(1, 30), WAY_BEFORE, sampling=LONG)
    cluster.run_all()
    (refusal,) = cluster.heard("a", CannotAddEvent)
    assert refusal.restart_helps
    assert "layers [0, 4) and [2, 8)" in refusal.message
    assert cluster.stages["a"].stats().kv_pages_total == pages
    assert cluster.answers[1, 1].token_ids == alone(1, 30)
    cluster.release_all()


def test_a_checkpoint_that_lost_a_tensor_is_told_and_its_room_goes_back_to_the_pages(
    checkpoint: Path, tmp_path: Path, alone: Callable[[int, int], list[int]]
) -> None:
    for file in checkpoint.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    cluster = stages_before(tmp_path)
    pages = cluster.stages["a"].stats().kv_pages_total
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["model.layers.7.mlp.down_proj.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    cluster.prompt(1, prompt_of(1, 30), WAY_BEFORE, sampling=LONG)
    cluster.add({"a": AFTER["a"]})
    cluster.until(lambda: bool(cluster.heard("a", CannotAddEvent)))
    (refusal,) = cluster.heard("a", CannotAddEvent)
    assert not refusal.restart_helps
    assert "'model.layers.7.mlp.down_proj.weight'" in refusal.message
    cluster.run_all()
    assert cluster.stages["a"].stats().kv_pages_total == pages
    assert cluster.answers[1, 1].token_ids == alone(1, 30)
    cluster.release_all()
