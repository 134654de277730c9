"""Who gets the pages of stages: shared prompts, reservations, and the young who give way."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engine_under_test import HEAD_SIZE
from stage_cluster import GREEDY, PAGE_TOKENS, StageCluster

from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.protocol.data import Reason
from runtime.protocol.engine_options import EngineOptions, PrefixRule

LAYERS = 4
TWO = {"a": (0, 2), "c": (2, 4)}
PATH = [("a", 0, 2), ("c", 2, 4)]
OTHERS = {"a": (0, 2), "b": (0, 3), "c": (2, 4)}
UNIT = PAGE_TOKENS // 4  # these numbers were chosen for pages of 4 tokens
PROMPT = [7 + 3 * index % 200 for index in range(30 * UNIT)]
LONG = replace(GREEDY, max_tokens=16 * UNIT)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("checkpoint")
    sizes = TinySizes(
        num_layers=LAYERS,
        hidden_size=32,
        head_size=HEAD_SIZE,
        intermediate_size=64,
        vocab_size=300,
        max_position_embeddings=512,
    )
    make_tiny_checkpoint(directory, sizes=sizes, seed=3)
    return directory


def cluster_of(
    checkpoint: Path, layers: dict[str, tuple[int, int]], **options: Any
) -> StageCluster:
    return StageCluster(checkpoint, layers, max_context_tokens=512, **options)


def alone(checkpoint: Path, prompt: list[int], **changes: int) -> list[int]:
    """What one stage that shares nothing answers."""
    cluster = cluster_of(
        checkpoint, {"solo": (0, LAYERS)}, options=EngineOptions(prefixes=PrefixRule.FORGET)
    )
    cluster.prompt(1, prompt, [("solo", 0, LAYERS)], sampling=replace(GREEDY, **changes))
    cluster.run_all()
    return cluster.answers[1, 1].token_ids


def reused(cluster: StageCluster) -> dict[str, int]:
    return {name: stage.stats().prefix_tokens_total for name, stage in cluster.stages.items()}


def test_a_prompt_that_begins_like_another_is_computed_from_where_it_differs(
    checkpoint: Path,
) -> None:
    cluster = cluster_of(checkpoint, TWO)
    cluster.prompt(1, PROMPT, PATH, epoch=0)
    cluster.run_all()
    cluster.release(1, epoch=0)
    cluster.turn()
    assert cluster.stages["a"].stats().kv_pages_cached == 2 * (len(PROMPT) // PAGE_TOKENS)
    other = [*PROMPT[: 18 * UNIT], 5, 6, 8]
    cluster.prompt(2, other, PATH, epoch=0)
    cluster.run_all()
    assert cluster.answers[2, 0].token_ids == alone(checkpoint, other)
    assert reused(cluster) == {"a": 16 * UNIT, "c": 16 * UNIT}
    computed = cluster.stages["c"].stats().prompt_tokens_total
    assert computed == len(PROMPT) + len(other) - 16 * UNIT
    cluster.release_all()


def test_requests_that_run_at_once_share_pages_and_the_last_token_is_always_run(
    checkpoint: Path,
) -> None:
    cluster = cluster_of(checkpoint, TWO)
    prompt = PROMPT[: 16 * UNIT]
    cluster.prompt(1, prompt, PATH, epoch=0)
    cluster.run_until(lambda: len(cluster.answers[1, 0].token_ids) == 3)
    cluster.prompt(2, prompt, PATH, epoch=0)
    cluster.run_all()
    expected = alone(checkpoint, prompt)
    assert cluster.answers[1, 0].token_ids == cluster.answers[2, 0].token_ids == expected
    assert reused(cluster) == {"a": 12 * UNIT, "c": 12 * UNIT}
    cluster.release_all()


def test_a_prompt_on_another_way_shares_nothing(checkpoint: Path) -> None:
    cluster = cluster_of(checkpoint, OTHERS)
    cluster.prompt(1, PROMPT, PATH, epoch=0)
    cluster.prompt(2, PROMPT, [("b", 0, 2), ("c", 2, 4)], epoch=0)
    cluster.run_all()
    cluster.prompt(3, PROMPT, [("a", 0, 2), ("c", 2, 4)], epoch=0)
    cluster.run_all()
    assert reused(cluster) == {"a": 28 * UNIT, "b": 0, "c": 28 * UNIT}
    assert cluster.answers[3, 0].token_ids == alone(checkpoint, PROMPT)
    cluster.release_all()


def test_a_stage_that_lost_the_prefix_says_so_and_the_next_epoch_computes_it(
    checkpoint: Path,
) -> None:
    # the second stage has room for little more than one prompt, so it keeps none for long
    cluster = cluster_of(checkpoint, TWO, few_pages={"c": 24})
    cluster.prompt(1, PROMPT, PATH, epoch=0, sampling=replace(GREEDY, max_tokens=2))
    cluster.run_all()
    cluster.release(1, epoch=0)
    cluster.prompt(2, PROMPT[::-1], PATH, epoch=0, sampling=replace(GREEDY, max_tokens=2))
    cluster.run_all()
    cluster.release(2, epoch=0)
    cluster.prompt(3, PROMPT, PATH, epoch=0, sampling=replace(GREEDY, max_tokens=2))
    cluster.run_all()
    assert cluster.answers[3, 0].nacks == [("c", Reason.PREFIX_GONE)]
    cluster.release(3, epoch=0)
    cluster.prompt(3, PROMPT, PATH, epoch=1, sampling=replace(GREEDY, max_tokens=2))
    cluster.run_all()
    assert cluster.answers[3, 1].token_ids == alone(checkpoint, PROMPT, max_tokens=2)
    cluster.release_all()


def test_nothing_is_kept_when_prefixes_are_to_be_forgotten(checkpoint: Path) -> None:
    cluster = cluster_of(checkpoint, TWO, options=EngineOptions(prefixes=PrefixRule.FORGET))
    for request in (1, 2):
        cluster.prompt(request, PROMPT, PATH, epoch=0, digests=(b"salt of some key",))
        cluster.run_all()
    assert reused(cluster) == {"a": 0, "c": 0}
    cluster.release_all()
    assert [stage.stats().kv_pages_cached for stage in cluster.stages.values()] == [0, 0]


def test_a_prompt_without_room_is_refused_before_it_costs_anything(checkpoint: Path) -> None:
    cluster = cluster_of(checkpoint, TWO, pages=24)
    cluster.prompt(1, PROMPT, PATH, sampling=LONG)
    cluster.turn()
    cluster.prompt(2, PROMPT[::-1], PATH, sampling=LONG)
    cluster.turn()
    assert cluster.answers[2, 1].nacks == [("a", Reason.NO_KV_PAGES)]
    assert cluster.stages["a"].stats().sequences == 1
    cluster.run_all()
    assert cluster.answers[1, 1].nacks == []
    assert len(cluster.answers[1, 1].token_ids) == LONG.max_tokens


def test_when_pages_run_out_the_youngest_gives_way_and_goes_on_later(checkpoint: Path) -> None:
    # each request needs 2 x 9 pages in the end; 3 of them fit with their prompts only
    cluster = cluster_of(checkpoint, TWO, pages=46)
    prompts = {request: PROMPT[request : request + 20 * UNIT] for request in (1, 2, 3)}
    for request, prompt in prompts.items():
        cluster.prompt(request, prompt, PATH, sampling=LONG)
        cluster.turn()
    cluster.run_all()
    assert {reason for _, reason in cluster.answers[3, 1].nacks} == {Reason.PREEMPTED}
    for request in (1, 2):
        assert cluster.answers[request, 1].nacks == []
        assert cluster.answers[request, 1].token_ids == alone(
            checkpoint, prompts[request], max_tokens=LONG.max_tokens
        )
        cluster.release(request)
    cluster.release(3)
    cluster.turn()
    emitted = cluster.answers[3, 1].token_ids
    assert 0 < len(emitted) < LONG.max_tokens
    cluster.prompt(
        3,
        prompts[3] + emitted,
        PATH,
        epoch=2,
        sampling=replace(LONG, max_tokens=LONG.max_tokens - len(emitted)),
    )
    cluster.run_all()
    assert emitted + cluster.answers[3, 2].token_ids == alone(
        checkpoint, prompts[3], max_tokens=LONG.max_tokens
    )
    assert sum(stage.stats().preemptions_total for stage in cluster.stages.values()) >= 1
    cluster.release_all()
