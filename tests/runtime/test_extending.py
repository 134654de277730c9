"""What the pages in `docs/extend` say is done: a router, a backend and a family are added."""

import random
from pathlib import Path
from typing import get_args

import pytest
import torch
from family_checkpoints import Family, load, save
from stage_cluster import StageCluster
from test_decoder import causal
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from docs.examples.backend import NUM_LAYERS, CountingBackend
from docs.examples.router import MostPerRequest
from planner.domain.cluster import SINK, SOURCE
from planner.domain.placement import LayerRange, Placement
from planner.routers import choice
from planner.routers.base import RequestSize
from planner.routers.kv_estimator import KvEstimator
from planner.routers.node_load import NodeLoad
from runtime.checkpoints import decoder_sizes
from runtime.models.compact_decoder import CompactDecoder
from runtime.models.config import read_config
from runtime.models.weights import load_decoder
from runtime.protocol.data import Reason

SMALL = RequestSize(prompt_tokens=4, predicted_output_tokens=4)


def test_a_router_is_a_class_and_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    names = (*get_args(choice.RouterName), "most_per_request")
    monkeypatch.setattr(choice, "ROUTER_NAMES", names)
    monkeypatch.setitem(
        choice.TURNS, "most_per_request", lambda load, rng: lambda targets: MostPerRequest(load)
    )
    now_s = 100.0
    load = NodeLoad(clock=lambda: now_s)
    router = choice.make_router(
        "most_per_request",
        routing_weights={SOURCE: {"a": 1, "b": 1}, "a": {SINK: 1}, "b": {SINK: 1}},
        placement=Placement(layers={name: LayerRange(first=0, end=4) for name in "ab"}),
        num_layers=4,
        partial_inference=False,
        kv=KvEstimator(
            capacity_token_layers=dict.fromkeys("ab", 1e6), page_tokens=1, high_water=0.9
        ),
        load=load,
        rng=random.Random(0),
    )
    taken = []
    for request in range(4):
        pipeline = router.choose(SMALL)
        assert pipeline is not None
        (stage,) = pipeline.stages
        load.admit(request, pipeline, size=SMALL)
        taken.append(stage.node)
    assert sorted(taken) == ["a", "a", "b", "b"], "who runs fewer requests is next"


def test_a_backend_serves_through_the_stages_loop() -> None:
    half = NUM_LAYERS // 2
    layers = {"a": (0, half), "b": (half, NUM_LAYERS)}
    backends = {
        name: CountingBackend(range(*each), pages=400, page_tokens=16)
        for name, each in layers.items()
    }
    cluster = StageCluster(Path(), layers, backends=backends)
    cluster.prompt(1, [5, 6, 7], [(name, *each) for name, each in layers.items()])
    cluster.run_all()
    answer = cluster.answers[1, 1]
    assert answer.finished is Reason.LENGTH
    assert answer.token_ids == answer.positions == list(range(3, 3 + len(answer.token_ids)))
    cluster.release_all()


class _OwnConfig(LlamaConfig):
    model_type = "own_family"


class _OwnModel(LlamaForCausalLM):
    config_class = _OwnConfig


def test_a_family_built_like_llama_is_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    AutoConfig.register("own_family", _OwnConfig, exist_ok=True)
    AutoModelForCausalLM.register(_OwnConfig, _OwnModel, exist_ok=True)
    save(Family(model_type="own_family", changes={}), tmp_path, seed=0)
    families = (*decoder_sizes.COMPACT_FAMILIES, "own_family")
    monkeypatch.setattr(decoder_sizes, "COMPACT_FAMILIES", families)
    config = read_config(tmp_path)
    decoder = load_decoder(
        tmp_path,
        config,
        first=0,
        end=config.num_layers,
        device=torch.device("cpu"),
        progress=lambda done, total: None,
    )
    assert isinstance(decoder, CompactDecoder)
    ids_T = torch.randint(2, 300, (40,), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        expected_TV = load(tmp_path)(ids_T[None]).logits[0]
        hidden_TD, rotation = decoder.embed(ids_T), decoder.rotation(torch.arange(len(ids_T)))
        for layer in range(config.num_layers):
            hidden_TD = decoder.run_layer(layer, hidden_TD, rotation=rotation, attend=causal)
        torch.testing.assert_close(decoder.logits(hidden_TD), expected_TV, rtol=1e-4, atol=1e-4)
