"""What clients may ask of sampling, on real stages: the same whatever the path and the batch."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from coordinator_doubles import write_checkpoint
from engine_under_test import HEAD_SIZE
from stage_cluster import GREEDY, StageCluster
from transformers import AutoModelForCausalLM

from runtime.engine.grammar import GrammarError, Grammars
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.protocol.data import Reason, Sampling

LAYERS = 4
STAGES = {"a": (0, 2), "b": (0, 3), "c": (2, 4), "d": (3, 4)}
PATHS = ([("a", 0, 2), ("c", 2, 4)], [("b", 0, 3), ("d", 3, 4)])
PROMPT = [50, 60, 70, 80, 90]
EOS = 257


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("checkpoint")
    sizes = TinySizes(
        num_layers=LAYERS,
        hidden_size=32,
        head_size=HEAD_SIZE,
        intermediate_size=64,
        vocab_size=300,
        max_position_embeddings=128,
    )
    make_tiny_checkpoint(directory, sizes=sizes, seed=3)
    config = (directory / "config.json").read_text()
    write_checkpoint(directory)  # a tokenizer of bytes beside the weights
    (directory / "config.json").write_text(config)
    return directory


def answer(checkpoint: Path, sampling: Sampling, *, path: int = 0, company: int = 0) -> list[int]:
    cluster = StageCluster(checkpoint, STAGES)
    for other in range(company):
        cluster.prompt(100 + other, [5 + other, 9], PATHS[other % 2])
    cluster.prompt(1, PROMPT, PATHS[path], sampling=sampling)
    cluster.run_all()
    assert cluster.answers[1, 1].nacks == []
    token_ids = cluster.answers[1, 1].token_ids
    cluster.release_all()
    return token_ids


def test_a_repetition_penalty_gives_the_tokens_that_transformers_gives(checkpoint: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    ids = torch.tensor([PROMPT])
    whole = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=16,
        min_new_tokens=16,
        repetition_penalty=1.3,
    )
    sampling = replace(GREEDY, repetition_penalty=1.3, prompt_ids=tuple(PROMPT))
    assert answer(checkpoint, sampling) == whole[0, len(PROMPT) :].tolist()


def test_a_token_that_must_not_come_does_not_come_and_a_favoured_one_does(
    checkpoint: Path,
) -> None:
    first = answer(checkpoint, GREEDY)[0]
    assert first not in answer(checkpoint, replace(GREEDY, logit_bias=((first, -100.0),)))
    assert set(answer(checkpoint, replace(GREEDY, logit_bias=((7, 100.0),)))) == {7}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_no_stop_token_comes_before_the_least_number_of_tokens(
    checkpoint: Path, temperature: float
) -> None:
    favoured = replace(
        GREEDY, temperature=temperature, stop_token_ids=(7, EOS), logit_bias=((7, 100.0),)
    )
    assert answer(checkpoint, favoured) == [7]
    least = answer(checkpoint, replace(favoured, min_tokens=5))
    assert len(least) == 6
    assert least[-1] == 7
    assert not {7, EOS}.intersection(least[:-1])
    # as many as may come at all
    assert len(answer(checkpoint, replace(favoured, min_tokens=16))) == 16


def test_a_schema_ends_an_answer_even_before_the_least_number_of_tokens(checkpoint: Path) -> None:
    """The end of sequence is then all that may follow `true`."""
    sampling = replace(
        GREEDY, grammar='{"const": true}', stop_token_ids=(EOS,), min_tokens=16, max_tokens=30
    )
    assert bytes_of(checkpoint, answer(checkpoint, sampling)) == "true"


def test_penalised_sampling_depends_on_neither_path_nor_batch(checkpoint: Path) -> None:
    sampling = Sampling(
        temperature=0.9,
        top_p=0.9,
        top_k=40,
        seed=5,
        max_tokens=20,
        min_p=0.01,
        presence_penalty=0.7,
        frequency_penalty=0.4,
        repetition_penalty=1.1,
        prompt_ids=tuple(PROMPT),
    )
    assert answer(checkpoint, sampling) == answer(checkpoint, sampling, path=1, company=5)


def test_a_request_begun_anew_goes_on_under_the_same_penalties(checkpoint: Path) -> None:
    sampling = Sampling(
        temperature=0.9,
        top_p=1.0,
        top_k=0,
        seed=5,
        max_tokens=20,
        frequency_penalty=1.5,
        repetition_penalty=1.4,
        prompt_ids=tuple(PROMPT),
    )
    whole = answer(checkpoint, sampling)
    cluster = StageCluster(checkpoint, STAGES)
    resumed = replace(sampling, max_tokens=12, emitted_ids=tuple(whole[:8]))
    cluster.prompt(1, PROMPT + whole[:8], PATHS[1], sampling=resumed)
    cluster.run_all()
    assert cluster.answers[1, 1].token_ids == whole[8:]


SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"on": {"type": "boolean"}, "kind": {"enum": ["red", "blue"]}},
        "required": ["on", "kind"],
        "additionalProperties": False,
    }
)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_answer_follows_its_schema_and_ends_when_it_is_whole(
    checkpoint: Path, seed: int
) -> None:
    sampling = replace(GREEDY, temperature=1.0, seed=seed, max_tokens=100, grammar=SCHEMA)
    cluster = StageCluster(checkpoint, STAGES, pages=2000)
    cluster.prompt(1, PROMPT, PATHS[0], sampling=sampling)
    cluster.run_all()
    # white space may go on for ever; what comes is a beginning of the object in any case
    text = bytes_of(checkpoint, cluster.answers[1, 1].token_ids)
    if cluster.answers[1, 1].finished is Reason.STOP:
        assert set(json.loads(text)) == {"on", "kind"}
    else:
        assert text.lstrip().startswith("{")
    cluster.release_all()


def bytes_of(checkpoint: Path, token_ids: list[int]) -> str:
    from tokenizers import Tokenizer

    text: str = Tokenizer.from_file(str(checkpoint / "tokenizer.json")).decode(token_ids)
    return text


def test_a_schema_without_white_space_is_followed_to_its_end(checkpoint: Path) -> None:
    """Spaces are made improbable, so that the object comes to an end."""
    spaces = tuple((token, -100.0) for token in (197, 198, 201, 220))
    sampling = replace(
        GREEDY, temperature=1.0, seed=4, max_tokens=100, grammar=SCHEMA, logit_bias=spaces
    )
    token_ids = answer(checkpoint, sampling)
    assert set(json.loads(bytes_of(checkpoint, token_ids))) == {"on", "kind"}
    assert token_ids == answer(checkpoint, sampling, path=1, company=3)


def test_a_schema_is_followed_on_by_a_request_begun_anew(checkpoint: Path) -> None:
    spaces = tuple((token, -100.0) for token in (197, 198, 201, 220))
    sampling = replace(
        GREEDY, temperature=1.0, seed=4, max_tokens=100, grammar=SCHEMA, logit_bias=spaces
    )
    whole = answer(checkpoint, sampling)
    cluster = StageCluster(checkpoint, STAGES, pages=2000)
    resumed = replace(sampling, max_tokens=100 - 6, emitted_ids=tuple(whole[:6]))
    cluster.prompt(1, PROMPT + whole[:6], PATHS[1], sampling=resumed)
    cluster.run_all()
    assert cluster.answers[1, 1].token_ids == whole[6:]


def test_a_schema_that_cannot_be_followed_refuses_its_request_and_no_other(
    checkpoint: Path,
) -> None:
    cluster = StageCluster(checkpoint, STAGES)
    cluster.prompt(1, PROMPT, PATHS[0], sampling=replace(GREEDY, grammar='{"type": "nothing"}'))
    cluster.prompt(2, PROMPT, PATHS[0])
    cluster.run_all()
    assert cluster.answers[1, 1].nacks == [("c", Reason.GRAMMAR_FAILED)]
    assert len(cluster.answers[2, 1].token_ids) == 16
    cluster.release_all()


def test_a_grammar_in_work_holds_no_other_request_up(checkpoint: Path) -> None:
    """Its lexer takes seconds; the other request has 16 tokens of two stages meanwhile."""
    cluster = StageCluster(checkpoint, STAGES)
    slow = json.dumps({"type": "integer", "multipleOf": 200_003})
    cluster.prompt(1, PROMPT, PATHS[0], sampling=replace(GREEDY, grammar=slow))
    cluster.prompt(2, PROMPT, PATHS[0])
    cluster.run_until(lambda: cluster.answers[2, 1].finished is not Reason.NONE)
    assert len(cluster.answers[2, 1].token_ids) == 16
    assert cluster.answers[1, 1].token_ids == []
    cluster.run_all()
    assert cluster.answers[1, 1].nacks == []
    assert len(cluster.answers[1, 1].token_ids) > 1
    cluster.release_all()


def test_a_request_that_ends_before_its_grammar_is_compiled_leaves_nothing(
    checkpoint: Path,
) -> None:
    cluster = StageCluster(checkpoint, STAGES)
    slow = json.dumps({"type": "integer", "multipleOf": 100_003})
    cluster.prompt(1, PROMPT, PATHS[0], sampling=replace(GREEDY, grammar=slow))
    cluster.run_until(lambda: cluster.stages["c"].is_held)
    cluster.release_all()
    assert not cluster.stages["c"].has_work


def test_a_checkpoint_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(GrammarError, match=r"tokenizer\.json does not exist"):
        Grammars(tmp_path, vocab_size=300).begin(SCHEMA).result()
