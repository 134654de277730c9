"""Which engine runs a model on which node, as the stage and the site decide it."""

import pytest

from runtime.checkpoints.engine_fit import (
    INSTALL,
    KINDS,
    NOT_INSTALLED,
    ModelTraits,
    choose,
    offers_of,
)
from runtime.protocol.engines import Engine, EngineOffer, EngineSettings

AUTO, VLLM, HELIX = Engine.AUTO, Engine.VLLM, Engine.HELIX
CUDA_KINDS = tuple(KINDS)
ON_CPU = EngineOffer(
    engine=VLLM,
    platform="cpu",
    dtypes=("bfloat16", "float16", "float32"),
    quantizations=("awq-4bit", "compressed-tensors-w8a8-fp8"),
    expert_quantizations=(),
    slow=("compressed-tensors-w8a8-fp8",),
)
V100, T4, A100 = (
    EngineOffer(
        engine=VLLM,
        platform="cuda",
        capability=capability,
        dtypes=("float16", "float32"),
        quantizations=CUDA_KINDS,
        expert_quantizations=CUDA_KINDS,
    )
    for capability in (70, 75, 80)
)
NONE = None


def node(vllm: EngineOffer | None) -> tuple[EngineOffer, ...]:
    """What a node with this vLLM offers; None: it has none, and no GPU."""
    has_gpu = vllm is not None and vllm.platform == "cuda"
    return offers_of(
        EngineSettings(python="" if vllm is None else "/python", has_gpu=has_gpu, vllm=vllm)
    )


def model(family: str = "llama", weights: str = "bfloat16", why_not_split: str = "") -> ModelTraits:
    return ModelTraits.by_name(
        family=family, weights=weights, checkpoint="/m", why_not_split=why_not_split
    )


@pytest.mark.parametrize(
    ("vllm", "what", "expected", "told"),
    [
        (NONE, model(), HELIX, "decoder of its own"),
        (NONE, model("gemma3_text"), HELIX, "slowly"),
        (NONE, model(weights="awq-4bit"), None, "needs vLLM on this node"),
        (ON_CPU, model(), HELIX, "decoder of its own"),
        (ON_CPU, model("gemma3_text"), VLLM, "no decoder of its own"),
        (ON_CPU, model(weights="awq-4bit"), VLLM, "awq-4bit"),
        (ON_CPU, model(weights="gguf-bfloat16"), HELIX, "GGUF"),
        (ON_CPU, model(weights="fp8-blocks"), None, "no kernel for fp8-blocks"),
        (ON_CPU, model("mixtral"), VLLM, "no decoder of its own"),
        (ON_CPU, model("mixtral", "awq-4bit"), None, "experts with awq-4bit"),
        (ON_CPU, model(weights="BF16, as ever"), HELIX, "decoder of its own"),
        (V100, model(), HELIX, "compute capability 7.0"),
        (V100, model(weights="awq-4bit"), None, "compute capability 7.0"),
        (T4, model(), VLLM, "fastest on a GPU"),
        (A100, model(weights="compressed-tensors-w8a8-fp8"), VLLM, "w8a8-fp8"),
        (A100, model(why_not_split="its layers keep a state"), None, "keep a state"),
        (A100, model("", ""), VLLM, "fastest on a GPU"),
    ],
)
def test_the_engine_or_why_there_is_none(
    vllm: EngineOffer | None, what: ModelTraits, expected: Engine | None, told: str
) -> None:
    choice = choose(what, node(vllm))
    assert choice.engine is expected
    assert told in str(choice.reason)
    assert bool(str(choice.remedy)) == (expected is None)


def test_nobody_is_sent_to_an_engine_that_cannot_run_the_model_either() -> None:
    choice = choose(model(weights="awq-4bit"), node(V100))
    assert "weights of another kind" in str(choice.remedy)


def test_the_node_overrules_the_deployment() -> None:
    both = choose(model(), node(A100), node=HELIX, deployment=VLLM)
    assert (both.engine, str(both.reason)) == (HELIX, "the node's agent was started with it")
    one = choose(model(), node(A100), deployment=HELIX)
    assert (one.engine, str(one.reason)) == (HELIX, "the deployment asks for it")


@pytest.mark.parametrize(
    ("vllm", "what", "asked"),
    [
        (NONE, model(), VLLM),
        (V100, model(), VLLM),
        (A100, model(weights="gguf-float16"), VLLM),
        (A100, model(weights="awq-4bit"), HELIX),
    ],
)
def test_an_engine_that_is_asked_for_must_run_the_model(
    vllm: EngineOffer | None, what: ModelTraits, asked: Engine
) -> None:
    choice = choose(what, node(vllm), deployment=asked)
    assert choice.engine is None
    assert str(choice.remedy)


def test_what_has_no_fast_kernel_is_slow() -> None:
    assert choose(model(weights="compressed-tensors-w8a8-fp8"), node(ON_CPU)).is_slow
    assert choose(model("gemma3_text"), node(NONE)).is_slow
    assert not choose(model(weights="awq-4bit"), node(ON_CPU)).is_slow


def test_an_environment_that_is_not_usable_is_told_with_the_remedy() -> None:
    broken = EngineOffer(engine=VLLM, why_not="it has vLLM 0.31.0; 0.32.0 is needed")
    choice = choose(model(), node(broken), deployment=VLLM)
    assert (choice.engine, str(choice.reason), choice.remedy) == (None, broken.why_not, INSTALL)
    assert str(choose(model(), node(NONE), deployment=VLLM).reason) == NOT_INSTALLED
