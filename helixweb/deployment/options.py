"""Options of a deployment's stages and coordinator. The command line imports it: no Django."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated

from planner import DEFAULT_THETA, MAX_THETA, Option
from runtime.protocol.engine_names import Engine

_MAX_TOKENS = 2**20
MAX_RANKS = 64
_RANKS = Option(
    "Ranks that share each layer",
    "Tensor parallelism: processes of a node, a GPU each. 1: a node is one process.",
    least=1,
    most=MAX_RANKS,
)
_ENGINE = Option(
    "Engine",
    "Computes the layers. Automatic: what the model names, else what suits each node.",
    choices={"auto": "Automatic", "vllm": "vLLM", "helix": "HelixWeb's engine"},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployOptions:
    """The options of a deployment beside its plan. Options of single nodes are by node name."""

    max_context_tokens: Annotated[
        int | None,
        Option(
            "Longest request",
            "Prompt and answer together. If not given: what the model allows.",
            unit="tokens",
            least=1,
            most=_MAX_TOKENS,
        ),
    ] = None
    max_queued_requests: Annotated[
        int,
        Option(
            "Requests that may wait",
            "Beyond them clients are asked to retry later.",
            least=0,
            most=2**20,
        ),
    ] = 64
    kv_high_water: Annotated[
        float,
        Option(
            "KV high-water mark",
            "Share of a node's KV cache that requests may be planned to fill.",
            least=0.05,
            most=1.0,
        ),
    ] = 0.9
    max_batch_tokens: Annotated[
        int,
        Option(
            "Tokens in one step",
            "At most so many rows of prompts and decodes. Up to twice as many where a request runs "
            "on one node alone.",
            least=1,
            most=_MAX_TOKENS,
        ),
    ] = 512
    page_tokens: Annotated[
        int,
        Option(
            "Tokens in a KV page", "A request takes whole pages in every layer.", least=1, most=1024
        ),
    ] = 16
    tensor_parallel: Annotated[int, _RANKS] = 1
    tensor_parallel_by_node: Annotated[
        Mapping[str, int],
        Option(
            "Nodes with another number of ranks",
            "NODE=RANKS, separated by blanks, for example gpu-a=2 gpu-b=4.",
            least=1,
            most=MAX_RANKS,
        ),
    ] = field(default_factory=dict)
    engine: Annotated[str, _ENGINE] = Engine.AUTO.value
    engine_by_node: Annotated[
        Mapping[str, str],
        Option(
            "Nodes with another engine",
            "NODE=auto, vllm or helix, separated by blanks.",
            choices={**_ENGINE.choices},
        ),
    ] = field(default_factory=dict)
    backend_by_node: Annotated[
        Mapping[str, str],
        Option(
            "Nodes whose instances something else runs",
            "NODE=helix, vllm or transformers, or NODE=http://… for a server that is there.",
        ),
    ] = field(default_factory=dict)
    theta: Annotated[
        float,
        Option(
            "Theta of the load-aware router",
            "How much an instance that gets full counts as busier.",
            least=0.01,
            most=MAX_THETA,
        ),
    ] = DEFAULT_THETA

    def engine_of(self, node_name: str) -> Engine:
        """The engine requested for the node."""
        return Engine(self.engine_by_node.get(node_name, self.engine))

    def ranks_of(self, node_name: str) -> int:
        """Processes of the node that share each layer."""
        return self.tensor_parallel_by_node.get(node_name, self.tensor_parallel)

    def with_engine_of_model(self, engine: str) -> "DeployOptions":
        """The options with the model's engine if none is named."""
        return replace(self, engine=engine) if self.engine == Engine.AUTO else self


DEFAULTS = DeployOptions()
OPTION_NAMES = tuple(option.name for option in fields(DeployOptions))
ENGINES = tuple(_ENGINE.choices)
