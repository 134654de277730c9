"""Real stages over the in-memory transport; `transformers` on the whole model is the oracle."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from engine_under_test import HEAD_SIZE, PAGE_TOKENS, fill_pages
from safetensors.torch import load_file, save_file
from stage_cluster import GENERATION, GREEDY, StageCluster

from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.protocol.data import DType, Entry, Flag, Hop, Kind, Message, Reason, Route, Sampling

LAYERS = 8
# overlapping ranges: every node but the ends can be entered in the middle
OVERLAPPING = {"a": (0, 4), "b": (2, 6), "c": (4, 8), "d": (0, 3), "e": (3, 8)}
PATHS = [
    [("a", 0, 4), ("b", 4, 6), ("c", 6, 8)],
    [("d", 0, 3), ("b", 3, 6), ("e", 6, 8)],
    [("a", 0, 4), ("c", 4, 8)],
    [("d", 0, 3), ("b", 3, 4), ("c", 4, 8)],
]
SIZES = TinySizes(
    num_layers=LAYERS,
    hidden_size=32,
    head_size=HEAD_SIZE,
    intermediate_size=64,
    vocab_size=300,
    max_position_embeddings=128,
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("checkpoint")
    make_tiny_checkpoint(directory, sizes=SIZES, seed=3)
    return directory


def greedy_oracle(checkpoint: Path, prompt: list[int], *, max_tokens: int) -> list[int]:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    ids = torch.tensor([prompt])
    whole = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=max_tokens,
        min_new_tokens=max_tokens,
    )
    return whole[0, len(prompt) :].tolist()


def random_prompt(seed: int, length: int) -> list[int]:
    return np.random.default_rng(seed).integers(5, 300, length).tolist()


@pytest.mark.parametrize(
    "sizes",
    [
        SIZES,
        replace(SIZES, tie_word_embeddings=True, shards=3),
        replace(SIZES, llama3_rope_factor=8.0, num_kv_heads=4),
        replace(SIZES, num_kv_heads=1),
    ],
    ids=["plain", "tied and sharded", "llama3 rope", "one kv head"],
)
def test_requests_on_overlapping_pipelines_get_the_tokens_of_the_whole_model(
    sizes: TinySizes, tmp_path: Path
) -> None:
    make_tiny_checkpoint(tmp_path, sizes=sizes, seed=5)
    cluster = StageCluster(tmp_path, OVERLAPPING, max_batch_tokens=9)
    lengths = [1, 40, 13, 22]
    for request, (path, length) in enumerate(zip(PATHS, lengths, strict=True)):
        cluster.prompt(request, random_prompt(request, length), path)
        for _ in range(request):  # they join while others decode
            cluster.turn()
    cluster.run_all()
    for request, length in enumerate(lengths):
        answer = cluster.answers[request, 1]
        expected = greedy_oracle(tmp_path, random_prompt(request, length), max_tokens=16)
        assert answer.token_ids == expected
        assert answer.positions == list(range(length, length + 16))
        assert answer.finished is Reason.LENGTH
    cluster.release_all()


def test_a_node_with_smaller_steps_cuts_chunks_and_changes_no_token(checkpoint: Path) -> None:
    cluster = StageCluster(
        checkpoint, OVERLAPPING, max_batch_tokens=32, smaller_steps={"b": 5, "c": 9}
    )
    for request in (1, 2):
        cluster.prompt(request, random_prompt(request, 40), PATHS[0])
    cluster.run_all()
    for request in (1, 2):
        assert cluster.answers[request, 1].token_ids == greedy_oracle(
            checkpoint, random_prompt(request, 40), max_tokens=16
        )
    cluster.release_all()


def test_a_single_node_answers_alone(checkpoint: Path) -> None:
    cluster = StageCluster(checkpoint, {"solo": (0, LAYERS)})
    prompt = random_prompt(1, 21)
    cluster.prompt(1, prompt, [("solo", 0, LAYERS)])
    cluster.run_all()
    assert cluster.answers[1, 1].token_ids == greedy_oracle(checkpoint, prompt, max_tokens=16)
    cluster.release_all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_rows_of_half_precision_cross_the_wire_unchanged(tmp_path: Path, dtype: str) -> None:
    make_tiny_checkpoint(tmp_path, sizes=SIZES, seed=3)
    path = tmp_path / "config.json"
    path.write_text(path.read_text().replace('"float32"', f'"{dtype}"'))
    answers = []
    for layers, hops in [
        ({"solo": (0, 8)}, [("solo", 0, 8)]),
        ({"a": (0, 4), "c": (4, 8)}, [("a", 0, 4), ("c", 4, 8)]),
    ]:
        cluster = StageCluster(tmp_path, layers)
        cluster.prompt(1, random_prompt(1, 21), hops)
        cluster.run_all()
        answers.append(cluster.answers[1, 1].token_ids)
    assert len(answers[0]) == 16
    assert answers[0] == answers[1]


def test_many_requests_at_once_get_the_tokens_each_gets_alone(checkpoint: Path) -> None:
    prompts = [random_prompt(seed, 3 + 5 * seed % 30) for seed in range(12)]
    together = StageCluster(checkpoint, OVERLAPPING, pages=2000, max_batch_tokens=7)
    for request, prompt in enumerate(prompts):
        together.prompt(request, prompt, PATHS[request % len(PATHS)])
    together.run_all()
    for request, prompt in enumerate(prompts):
        alone = StageCluster(checkpoint, {"solo": (0, LAYERS)}, max_batch_tokens=100)
        alone.prompt(request, prompt, [("solo", 0, LAYERS)])
        alone.run_all()
        assert together.answers[request, 1].token_ids == alone.answers[request, 1].token_ids
    together.release_all()


def test_seeded_sampling_depends_on_neither_path_nor_batch(checkpoint: Path) -> None:
    sampling = Sampling(temperature=1.0, top_p=0.95, top_k=50, seed=11, max_tokens=20)
    prompt = random_prompt(8, 17)
    answers = []
    for path, company in [(PATHS[0], 0), (PATHS[1], 3), (PATHS[2], 6)]:
        cluster = StageCluster(checkpoint, OVERLAPPING, pages=2000)
        for other in range(company):
            cluster.prompt(100 + other, random_prompt(other, 10), PATHS[other % len(PATHS)])
        cluster.prompt(1, prompt, path, sampling=sampling)
        cluster.run_all()
        answers.append(cluster.answers[1, 1].token_ids)
    assert len(answers[0]) == 20
    assert answers[0] == answers[1] == answers[2]


def test_a_request_continued_elsewhere_goes_on_with_the_same_tokens(checkpoint: Path) -> None:
    sampling = Sampling(temperature=0.8, top_p=1.0, top_k=0, seed=5, max_tokens=20)
    prompt = random_prompt(2, 15)
    cluster = StageCluster(checkpoint, OVERLAPPING)
    cluster.prompt(1, prompt, PATHS[0], sampling=sampling)
    cluster.run_all()
    whole = cluster.answers[1, 1].token_ids
    cluster.prompt(
        1, prompt + whole[:9], PATHS[1], sampling=replace(sampling, max_tokens=11), epoch=2
    )
    cluster.run_all()
    assert cluster.answers[1, 2].token_ids == whole[9:]
    cluster.release_all()


def test_a_stop_token_ends_the_request_and_no_token_follows(checkpoint: Path) -> None:
    prompt = random_prompt(4, 9)
    expected = greedy_oracle(checkpoint, prompt, max_tokens=16)
    stop = expected[5]
    cluster = StageCluster(checkpoint, OVERLAPPING)
    cluster.prompt(1, prompt, PATHS[0], sampling=replace(GREEDY, stop_token_ids=(stop,)))
    cluster.run_all()
    for _ in range(5):
        cluster.turn()
    answer = cluster.answers[1, 1]
    assert answer.token_ids == expected[: expected.index(stop) + 1]
    assert answer.finished is Reason.STOP
    cluster.release_all()


def test_a_request_ends_when_the_context_is_full(checkpoint: Path) -> None:
    cluster = StageCluster(checkpoint, OVERLAPPING, max_context_tokens=24)
    cluster.prompt(1, random_prompt(4, 20), PATHS[0])
    cluster.run_all()
    answer = cluster.answers[1, 1]
    assert answer.finished is Reason.LENGTH
    assert answer.positions == [20, 21, 22, 23, 24]
    cluster.release_all()


def test_a_release_in_the_middle_frees_the_pages_and_late_rows_are_dropped(
    checkpoint: Path,
) -> None:
    cluster = StageCluster(checkpoint, OVERLAPPING)
    cluster.prompt(1, random_prompt(4, 20), PATHS[0])
    cluster.run_until(lambda: len(cluster.answers[1, 1].token_ids) == 3)
    cluster.release(1)
    for _ in range(12):
        cluster.turn()
    assert len(cluster.answers[1, 1].token_ids) < 16
    assert cluster.answers[1, 1].nacks == []
    cluster.release_all()


def test_a_release_that_overtakes_the_rows_wins(checkpoint: Path) -> None:
    cluster = StageCluster(checkpoint, OVERLAPPING)
    cluster.release(1, nodes=["b"])
    cluster.turn()
    cluster.prompt(1, random_prompt(4, 5), PATHS[0])
    for _ in range(6):
        cluster.turn()
    assert cluster.answers[1, 1].nacks == []
    assert cluster.stages["b"].stats().kv_pages_used == 0
    cluster.release_all()


def test_a_full_pool_refuses_one_request_and_serves_the_other(checkpoint: Path) -> None:
    # room for one request of 20 + 16 tokens on 4 layers, not for two
    pages = 4 * -(-36 // PAGE_TOKENS) + 4
    cluster = StageCluster(checkpoint, {"a": (0, 4), "c": (4, 8)}, pages=pages)
    for request in (1, 2):
        cluster.prompt(request, random_prompt(request, 20), [("a", 0, 4), ("c", 4, 8)])
    cluster.run_until(lambda: any(answer.nacks for answer in cluster.answers.values()))
    refused = next(key for key, answer in cluster.answers.items() if answer.nacks)
    assert {reason for _, reason in cluster.answers[refused].nacks} == {Reason.NO_KV_PAGES}
    cluster.release(refused[0])
    cluster.run_all()
    served = 3 - refused[0]
    assert cluster.answers[served, 1].token_ids == greedy_oracle(
        checkpoint, random_prompt(served, 20), max_tokens=16
    )
    cluster.release_all()


def test_another_generation_is_refused_with_its_own_number(checkpoint: Path) -> None:
    cluster = StageCluster(checkpoint, OVERLAPPING)
    cluster.prompt(1, [5, 6], PATHS[0], generation=GENERATION - 1)
    cluster.stages["a"].run(iter((False, True)).__next__)
    nacks = [
        received.message
        for received in cluster.coordinator.receive(timeout_s=0)
        if received.message.kind == Kind.NACK
    ]
    assert [nack.generation for nack in nacks] == [GENERATION - 1]
    assert nacks[0].entries[0].reason is Reason.WRONG_GENERATION


def rows_for(
    node: str,
    cluster: StageCluster,
    entry: Entry,
    *,
    sender: str = "a",
    floats: int = 32,
    value: float = 0,
) -> None:
    payload = np.full((entry.n_tokens, floats), value, dtype="<f4").tobytes()
    cluster.transports[sender].send(
        node,
        Message(
            kind=Kind.ROWS,
            generation=GENERATION,
            entries=(entry,),
            dtype=DType.FLOAT32,
            payload=payload,
        ),
    )


def test_rows_of_a_request_that_never_came_are_refused_once(checkpoint: Path) -> None:
    cluster = StageCluster(checkpoint, OVERLAPPING)
    for position in range(3):
        rows_for("b", cluster, Entry(request=9, epoch=1, position=position, n_tokens=1, hop=1))
    cluster.turn()
    assert cluster.answers[9, 1].nacks == [("b", Reason.UNKNOWN_REQUEST)]


def test_a_token_for_a_stage_that_was_restarted_is_refused(checkpoint: Path) -> None:
    cluster = StageCluster(checkpoint, OVERLAPPING)
    cluster.coordinator.send(
        "a",
        Message(
            kind=Kind.SAMPLED,
            generation=GENERATION,
            entries=(Entry(request=9, epoch=1, position=4, n_tokens=1, hop=0),),
            dtype=DType.INT32,
            payload=np.array([7], dtype="<i4").tobytes(),
        ),
    )
    cluster.turn()
    assert cluster.answers[9, 1].nacks == [("a", Reason.UNKNOWN_REQUEST)]


@pytest.mark.parametrize(
    "hops",
    [
        [("a", 0, 5), ("c", 5, 8)],
        [("x", 0, 4), ("c", 4, 8)],
        [("a", 1, 4), ("c", 4, 8)],
        [("a", 0, 2), ("b", 2, 4), ("a", 4, 8)],
        [("a", 0, 4)],
    ],
    ids=[
        "layers it does not hold",
        "another node's hop",
        "a first stage without layer 0",
        "the same node twice",
        "a last stage without the last layer",
    ],
)
def test_a_route_the_stage_cannot_run_is_refused(
    checkpoint: Path, hops: list[tuple[str, int, int]]
) -> None:
    cluster = StageCluster(checkpoint, OVERLAPPING)
    cluster.prompt(1, [5, 6, 7], PATHS[0])
    cluster.run_all()
    route_owner = StageCluster(checkpoint, OVERLAPPING)
    route_owner.coordinator.send("a", _prompt_with(hops))
    route_owner.turn()
    assert route_owner.answers[1, 1].nacks == [("a", Reason.STAGE_ERROR)]


def _prompt_with(hops: list[tuple[str, int, int]]) -> Message:
    from runtime.protocol.data import Hop, Route

    route = Route(
        hops=tuple(Hop(node=node, first=first, end=end) for node, first, end in hops),
        sampling=GREEDY,
        prompt_tokens=1,
    )
    entry = Entry(
        request=1, epoch=1, position=0, n_tokens=1, hop=0, flags=Flag.PROMPT_END, route=route
    )
    return Message(
        kind=Kind.PROMPT,
        generation=GENERATION,
        entries=(entry,),
        dtype=DType.INT32,
        payload=np.array([5], dtype="<i4").tobytes(),
    )


def test_a_token_id_outside_the_vocabulary_is_refused_and_others_go_on(checkpoint: Path) -> None:
    cluster = StageCluster(checkpoint, OVERLAPPING)
    cluster.prompt(1, [5, 300], PATHS[0])
    cluster.prompt(2, [5, 6], PATHS[0])
    cluster.run_all()
    assert cluster.answers[1, 1].nacks == [("a", Reason.STAGE_ERROR)]
    assert len(cluster.answers[2, 1].token_ids) == 16
    cluster.release_all()


def test_rows_with_a_gap_are_refused_and_rows_that_come_twice_are_ignored(
    checkpoint: Path,
) -> None:
    cluster = StageCluster(checkpoint, OVERLAPPING)
    cluster.prompt(1, [5, 6, 7], PATHS[2])
    cluster.run_until(lambda: len(cluster.answers[1, 1].token_ids) == 4)
    rows_for("c", cluster, Entry(request=1, epoch=1, position=1, n_tokens=1, hop=1))
    cluster.turn()
    assert cluster.answers[1, 1].nacks == []
    rows_for("c", cluster, Entry(request=1, epoch=1, position=60, n_tokens=1, hop=1))
    cluster.turn()
    assert cluster.answers[1, 1].nacks == [("c", Reason.STAGE_ERROR)]


def test_a_failing_step_refuses_its_requests_and_the_stage_goes_on(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = StageCluster(checkpoint, {"solo": (0, LAYERS)})
    with monkeypatch.context() as patch:
        patch.setattr(torch, "cat", _fail)
        patch.setattr("runtime.engine.attention.np.concatenate", _fail)
        cluster.prompt(1, [5, 6], [("solo", 0, LAYERS)])
        cluster.run_all()
    assert cluster.answers[1, 1].nacks == [("solo", Reason.STAGE_ERROR)]
    cluster.prompt(2, [5, 6], [("solo", 0, LAYERS)])
    cluster.run_all()
    assert len(cluster.answers[2, 1].token_ids) == 16
    cluster.release_all()


def _fail(*_arguments: object, **_options: object) -> None:
    raise RuntimeError("out of memory, say")


def test_counters_tell_prompt_from_decode_tokens(checkpoint: Path) -> None:
    cluster = StageCluster(checkpoint, OVERLAPPING)
    cluster.prompt(1, random_prompt(1, 30), PATHS[2])
    cluster.run_all()
    for name in ("a", "c"):
        stats = cluster.stages[name].stats()
        assert (stats.prompt_tokens_total, stats.decode_tokens_total) == (30, 15)
        assert stats.busy_s_total > 0
    cluster.release_all()


def test_a_stage_tells_the_coordinator_its_room_at_once(checkpoint: Path) -> None:
    cluster = StageCluster(checkpoint, OVERLAPPING, pages=123)
    cluster.turn()
    assert set(cluster.statuses) == set(OVERLAPPING)
    status = cluster.statuses["b"]
    assert (status.first, status.end, status.pages_total, status.pages_used) == (2, 6, 123, 0)


def test_what_others_left_in_the_pages_changes_no_token(checkpoint: Path) -> None:
    """NaN survives a mask: 0 x NaN is NaN. So pages must not be handed on as they are."""
    cluster = StageCluster(checkpoint, {"solo": (0, LAYERS)})
    fill_pages(cluster.runners["solo"], torch.nan)
    lengths = {1: 3, 2: 30}  # decoded together, so the shorter one is padded
    for request, length in lengths.items():
        cluster.prompt(request, random_prompt(request, length), [("solo", 0, LAYERS)])
    cluster.run_all()
    for request, length in lengths.items():
        expected = greedy_oracle(checkpoint, random_prompt(request, length), max_tokens=16)
        assert cluster.answers[request, 1].token_ids == expected
    cluster.release_all()


def test_rows_that_are_not_numbers_refuse_their_request_and_no_other(checkpoint: Path) -> None:
    cluster = StageCluster(checkpoint, {"a": (0, 4), "c": (4, LAYERS)})
    path = [("a", 0, 4), ("c", 4, LAYERS)]
    cluster.prompt(2, random_prompt(2, 6), path)
    cluster.run_until(lambda: len(cluster.answers[2, 1].token_ids) == 2)
    route = Route(
        hops=tuple(Hop(node=node, first=first, end=end) for node, first, end in path),
        sampling=GREEDY,
        prompt_tokens=3,
    )
    entry = Entry(
        request=1, epoch=1, position=0, n_tokens=3, hop=1, flags=Flag.PROMPT_END, route=route
    )
    rows_for("c", cluster, entry, value=float("nan"))
    cluster.run_all()
    assert cluster.answers[1, 1].nacks == [("c", Reason.NOT_A_NUMBER)]
    assert cluster.answers[1, 1].token_ids == []
    assert cluster.answers[2, 1].token_ids == greedy_oracle(
        checkpoint, random_prompt(2, 6), max_tokens=16
    )
    cluster.release_all()


def test_infinite_logits_refuse_their_request_as_logits_that_are_no_numbers_do(
    checkpoint: Path, tmp_path: Path
) -> None:
    """As of weights that overflow their format: the largest logit is infinite, none is NaN."""
    for file in checkpoint.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["lm_head.weight"][5, 0] = torch.inf
    tensors["lm_head.weight"][6, 0] = -torch.inf
    save_file(tensors, tmp_path / "model.safetensors")
    cluster = StageCluster(tmp_path, {"solo": (0, LAYERS)})
    cluster.prompt(1, random_prompt(1, 6), [("solo", 0, LAYERS)])
    cluster.run_all()
    assert cluster.answers[1, 1].nacks == [("solo", Reason.NOT_A_NUMBER)]
    assert cluster.answers[1, 1].token_ids == []
    cluster.release_all()
