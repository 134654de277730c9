"""The dispatcher and real stages together; `transformers` on the whole model is the oracle."""

import itertools
from pathlib import Path

import torch
from coordinator_doubles import Clock, routing, see
from stage_cluster import GENERATION, PAGE_TOKENS, StageCluster

from planner.domain.cluster import SINK, SOURCE
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Workload
from runtime.coordinator.dispatcher import Dispatcher
from runtime.coordinator.request_stats import RequestStats
from runtime.coordinator.serving import Serving
from runtime.coordinator.tokenizer import load_tokenizer
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.protocol.control import ServingPlan
from runtime.protocol.data import Sampling
from runtime.protocol.openai_parameters import ChatMessage

LAYERS = {"a": (0, 4), "b": (2, 6), "c": (4, 8), "d": (0, 3), "e": (3, 8)}
WEIGHTS = {
    SOURCE: {"a": 3.0, "d": 2.0},
    "a": {"b": 1.0, "c": 2.0},
    "d": {"b": 1.0, "e": 1.0},
    "b": {"c": 1.0, "e": 1.0},
    "c": {SINK: 3.0},
    "e": {SINK: 2.0},
}
SIZES = TinySizes(
    num_layers=8,
    hidden_size=32,
    intermediate_size=64,
    vocab_size=300,
    max_position_embeddings=128,
)
MAX_TOKENS = 12


def oracle(checkpoint: Path, prompt: list[int]) -> list[int]:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    ids = torch.tensor([prompt])
    whole = model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=MAX_TOKENS
    )
    return whole[0, len(prompt) :].tolist()


def test_a_conversation_becomes_the_same_token_ids_as_with_transformers(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    make_tiny_checkpoint(tmp_path, sizes=SIZES, seed=5)
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Grüße 😀"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": " and now? "},
    ]
    theirs = AutoTokenizer.from_pretrained(tmp_path).apply_chat_template(
        messages, add_generation_prompt=True, tokenize=True, return_dict=False
    )
    ours = load_tokenizer(tmp_path).encode_chat(
        [ChatMessage.model_validate(message) for message in messages]
    )
    assert ours == list(theirs)


def test_chats_through_overlapping_pipelines_get_the_tokens_of_the_whole_model(
    tmp_path: Path,
) -> None:
    make_tiny_checkpoint(tmp_path, sizes=SIZES, seed=5)
    cluster = StageCluster(tmp_path, LAYERS)
    clock, ids = Clock(), itertools.count(1)
    dispatcher = Dispatcher(
        transport=cluster.coordinator,
        stats=RequestStats(window_s=10, clock=clock),
        clock=clock,
        new_request_id=lambda: next(ids),
        request_timeout_s=60,
    )
    serving = Serving(
        plan=ServingPlan(
            deployment_id=1,
            generation=GENERATION,
            model_name="tiny",
            checkpoint=str(tmp_path),
            num_layers=8,
            partial_inference=True,
            placement=Placement(
                layers={
                    name: LayerRange(first=first, end=end) for name, (first, end) in LAYERS.items()
                }
            ),
            routing_weights=WEIGHTS,
            workload=Workload(mean_prompt_tokens=20, mean_output_tokens=10),
            max_context_tokens=128,
            page_tokens=PAGE_TOKENS,
            peers=(),
        ),
        tokenizer=load_tokenizer(tmp_path),
        routing=routing(),
    )
    dispatcher.serve(serving)
    see(dispatcher, *LAYERS)

    def turn() -> None:
        for stage in cluster.stages.values():
            turns = iter((False, True))
            stage.run(lambda turns=turns: next(turns))  # type: ignore[misc]
        for received in cluster.coordinator.receive(timeout_s=0):
            dispatcher.receive(received)

    while serving.missing_nodes():
        turn()
    requests = [
        dispatcher.submit(
            serving,
            prompt_ids=serving.tokenizer.encode_chat(
                [ChatMessage.model_validate({"role": "user", "content": text})]
            ),
            sampling=Sampling(
                temperature=0,
                top_p=1,
                top_k=0,
                seed=0,
                max_tokens=MAX_TOKENS,
                stop_token_ids=serving.tokenizer.stop_token_ids,
            ),
            stop_strings=(),
        )
        for text in ("Hello", "Where do layers run?", "Grüße 😀", "x", "One more")
    ]
    while dispatcher.requests_running:
        turn()
    for _ in range(3):
        turn()
    for request in requests:
        assert request.token_ids == oracle(tmp_path, list(request.prompt_ids))
    assert len({request.pipeline for request in requests}) > 2
    for name, stage in cluster.stages.items():
        stage.check_pages()
        assert stage.stats().kv_pages_used == 0, name
        assert serving.kv.used_token_layers(name) == 0, name
