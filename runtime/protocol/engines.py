"""Which engine computes a stage: HelixWeb's own decoders, or vLLM's model code."""

from enum import StrEnum

from pydantic import Field

from runtime.protocol.engine_names import Engine as Engine
from runtime.protocol.message import Message

# internal names of vLLM move every few releases: a stage runs with this one only
VLLM_VERSION = "0.32.0"
_MOST_KINDS = 100


class ComputeDtype(StrEnum):
    """What a stage computes in. `AUTO`: the checkpoint's type, where the device computes it."""

    AUTO = "auto"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FLOAT32 = "float32"


class EngineOffer(Message):
    """What an engine can run on a node. `why_not`: why it can run nothing there; empty: it can.

    `platform` is cpu, cuda or rocm; `capability` a CUDA device's, times ten. `quantizations` are
    the kinds of stored weights that have kernels there ("gguf" is one), `expert_quantizations`
    those of mixtures of experts; null: not known, so none is refused. `slow`: run without a fast
    kernel.
    """

    engine: Engine
    version: str = Field(default="", max_length=40)
    platform: str = Field(default="", max_length=20)
    capability: int | None = Field(default=None, ge=0)
    dtypes: tuple[str, ...] = Field(default=(), max_length=_MOST_KINDS)
    families: tuple[str, ...] = Field(default=(), max_length=_MOST_KINDS)
    quantizations: tuple[str, ...] | None = Field(default=None, max_length=_MOST_KINDS)
    expert_quantizations: tuple[str, ...] | None = Field(default=None, max_length=_MOST_KINDS)
    slow: tuple[str, ...] = Field(default=(), max_length=_MOST_KINDS)
    why_not: str = Field(default="", max_length=400)


class EngineSettings(Message):
    """What the node's person chose, and what the node has.

    `python` is the interpreter of an environment with vLLM; empty: there is none. `vllm`: what it
    can run here; null: not known yet. `decode_graphs`: decode steps of vLLM on a GPU are CUDA
    graphs.
    """

    engine: Engine = Engine.AUTO
    compute_dtype: ComputeDtype = ComputeDtype.AUTO
    python: str = ""
    has_gpu: bool = False
    vllm: EngineOffer | None = None
    decode_graphs: bool = True


AUTOMATIC = EngineSettings()
