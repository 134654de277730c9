"""The engines, without what describes them: the site's tables name them, and load no pydantic."""

from enum import StrEnum


class Engine(StrEnum):
    """`AUTO`: by the model and the device; see `runtime.checkpoints.engine_fit`."""

    AUTO = "auto"
    VLLM = "vllm"
    HELIX = "helix"
