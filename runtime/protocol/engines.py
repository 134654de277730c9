"""Which engine computes a stage: HelixWeb's own decoders, or vLLM's model code."""

from enum import StrEnum

from runtime.protocol.message import Message

# internal names of vLLM move every few releases: a stage runs with this one only
VLLM_VERSION = "0.32.0"


class Engine(StrEnum):
    """`AUTO`: by the model and the device; see `runtime.engine.choosing`."""

    AUTO = "auto"
    VLLM = "vllm"
    HELIX = "helix"


class ComputeDtype(StrEnum):
    """What a stage computes in. `AUTO`: the checkpoint's type, where the device computes it."""

    AUTO = "auto"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FLOAT32 = "float32"


class EngineSettings(Message):
    """What the node's person chose, and what the node has.

    `python` is the interpreter of an environment with vLLM; empty: there is none.
    """

    engine: Engine = Engine.AUTO
    compute_dtype: ComputeDtype = ComputeDtype.AUTO
    python: str = ""
    has_gpu: bool = False


AUTOMATIC = EngineSettings()
