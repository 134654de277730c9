"""Stages that compute in unlike types exchange rows of one type.

Runs on both engines (`HELIX_TEST_ENGINE`).
"""

from itertools import product
from pathlib import Path

import pytest
import torch
from engine_under_test import ENGINE, HEAD_SIZE, open_launch
from forced_logits import Cut, distance, logits_of
from safetensors.torch import load_file, save_file
from stage_cluster import PAGE_TOKENS, StageCluster

from runtime.engine.stage_engine import compute_dtype
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.protocol.control import StageAssignment
from runtime.protocol.data import DType, Reason
from runtime.protocol.engines import ComputeDtype, EngineSettings
from runtime.protocol.stage_pipe import StageLaunch

LAYERS = 6
FIRST, MIDDLE, LAST = range(2), range(2, 4), range(4, LAYERS)
WIRE = torch.bfloat16
SIZES = TinySizes(
    num_layers=LAYERS,
    hidden_size=64,
    head_size=HEAD_SIZE,
    intermediate_size=128,
    vocab_size=300,
    max_position_embeddings=128,
    dtype="bfloat16",
)
PROMPT = [7 + 3 * index % 200 for index in range(40)]
HUGE_TOKEN = 7


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bfloat16")
    make_tiny_checkpoint(folder, sizes=SIZES, seed=5)
    return folder


@pytest.fixture(scope="module")
def expected_TV(checkpoint: Path) -> torch.Tensor:
    """Of the same weights, computed in float32."""
    from transformers import AutoModelForCausalLM

    oracle = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    with torch.inference_mode():
        return oracle(torch.tensor([PROMPT])).logits[0]


@pytest.mark.parametrize(
    "types",
    [
        ("bfloat16", "float16", "float32"),
        ("float16", "bfloat16", "float16"),
        ("float32", "float16", "bfloat16"),
        ("float16", "float16", "float16"),
    ],
    ids=lambda types: " ".join(types),
)
def test_a_chain_of_unlike_types_is_as_close_as_one_of_the_checkpoint_s(
    types: tuple[str, str, str], checkpoint: Path, expected_TV: torch.Tensor
) -> None:
    layers = (FIRST, MIDDLE, LAST)
    usual = logits_of(checkpoint, PROMPT, [Cut(layers=each) for each in layers])
    mixed = logits_of(
        checkpoint,
        PROMPT,
        [Cut(layers=each, computed_in=name) for each, name in zip(layers, types, strict=True)],
        wire_dtype=WIRE,
    )
    allowed = 1.5 * distance(usual, expected_TV)
    assert 0 < distance(mixed, expected_TV) < allowed < 0.05


@pytest.mark.parametrize(
    "engines", [*product(dict.fromkeys(("helix", ENGINE)), repeat=2)], ids="-".join
)
def test_float32_on_a_float32_wire_computes_what_the_whole_model_does(
    engines: tuple[str, str], checkpoint: Path, expected_TV: torch.Tensor
) -> None:
    first, last = (
        Cut(layers=layers, computed_in="float32", engine=engine)
        for layers, engine in zip((range(3), range(3, LAYERS)), engines, strict=True)
    )
    chain = logits_of(checkpoint, PROMPT, [first, last], wire_dtype=torch.float32)
    assert distance(chain, expected_TV) < 1e-5


def test_rows_that_overflow_float16_refuse_their_request_where_it_happens_and_no_other(
    checkpoint: Path, tmp_path: Path
) -> None:
    for file in checkpoint.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["model.embed_tokens.weight"][HUGE_TOKEN] *= 1e8
    save_file(tensors, tmp_path / "model.safetensors")
    layers = {"a": (0, 2), "b": (2, 4), "c": (4, LAYERS)}
    path = [(name, *ends) for name, ends in layers.items()]
    refused = {}
    for computed_in in ("float16", "float32"):
        cluster = StageCluster(tmp_path, layers, computed_in={"b": computed_in}, wire_dtype=WIRE)
        cluster.prompt(1, [20, 21, HUGE_TOKEN, 22], path)
        cluster.prompt(2, [20, 21, 22], path)
        cluster.run_all()
        assert len(cluster.answers[2, 1].token_ids) == 16
        refused[computed_in] = cluster.answers[1, 1].nacks
        cluster.release_all()
    assert refused["float16"][0] == ("b", Reason.NOT_A_NUMBER)
    assert refused["float32"] == []


@pytest.mark.parametrize("chosen", ["auto", "float16", "float32"])
def test_a_launch_is_computed_as_its_node_was_told_and_sent_as_its_deployment_was(
    chosen: str, checkpoint: Path
) -> None:
    assignment = StageAssignment(
        deployment_id=1,
        generation=1,
        model_name="tiny",
        checkpoint=str(checkpoint),
        first=1,
        end=3,
        num_layers=LAYERS,
        page_tokens=PAGE_TOKENS,
        max_batch_tokens=16,
        max_context_tokens=64,
        peers=(),
    )
    launch = StageLaunch(
        assignment=assignment,
        name="n",
        bind="tcp://127.0.0.1:0",
        secret_key_file="",
        public_key="k" * 40,
        memory_budget_bytes=2**22,
        engine=EngineSettings(compute_dtype=ComputeDtype(chosen)),
    )
    backend = open_launch(launch).backend
    in_float32 = chosen == "float32"
    assert f"in {'bfloat16' if chosen == 'auto' else chosen}" in backend.engine
    assert backend.shape.dtype is DType.BFLOAT16
    plain = open_launch(launch.model_copy(update={"engine": EngineSettings()})).backend
    assert backend.weights_bytes == plain.weights_bytes * (2 if in_float32 else 1)
    page = backend.kv_bytes / backend.kv_manager.total
    assert page == plain.kv_bytes / plain.kv_manager.total * (2 if in_float32 else 1)
    told = launch.model_copy(
        update={"assignment": assignment.model_copy(update={"wire_dtype": "float16"})}
    )
    assert open_launch(told).backend.shape.dtype is DType.FLOAT16


@pytest.mark.parametrize(
    ("stored", "capability", "expected"),
    [
        ("bfloat16", (7, 5), "float16"),
        ("bfloat16", (8, 0), "bfloat16"),
        ("float16", (7, 5), "float16"),
        ("float32", (7, 5), "float32"),
        ("bfloat16", None, "bfloat16"),
    ],
)
def test_only_bfloat16_on_a_gpu_without_it_is_computed_in_another_type(
    stored: str,
    capability: tuple[int, int] | None,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    device = torch.device("cpu" if capability is None else "cuda")
    assert compute_dtype(ComputeDtype.AUTO, stored, device) == expected
    assert compute_dtype(ComputeDtype.BFLOAT16, stored, device) == "bfloat16"
