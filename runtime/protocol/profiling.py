"""What helixweb and an agent say about measuring a node in the background.

The answer to a heartbeat says which order stands (none: measure nothing), each heartbeat how far it
is. Nothing depends on one of them arriving: an order stands until its result was taken.
"""

from enum import StrEnum

from pydantic import Field

from planner.domain.layer_times import LayerTimes
from planner.domain.node_memory import KvMinimum, NodeMemory
from runtime.protocol.engines import Engine
from runtime.protocol.message import Count, Message, SmallCount

MOST_POINTS = 200
MOST_CHECKED = 8
MOST_LAYERS = 2000


class ProfilingPhase(StrEnum):
    """Where an agent is with an order."""

    WAITING = "waiting"  # for traffic on the node to pause
    MEASURING = "measuring"
    DONE = "done"
    FAILED = "failed"


class MeasuredPoint(Message):
    """One step, timed several times: the least of `runs` is `seconds`, the median `median_s`.

    `phase` is prompt or decode, `tokens` those of each prompt, or of each context of a decode.
    """

    phase: str = Field(pattern="^(prompt|decode)$")
    layers: int = Field(ge=1, le=MOST_LAYERS)
    batch: int = Field(ge=1)
    tokens: Count
    seconds: float = Field(gt=0)
    median_s: float = Field(gt=0)
    runs: int = Field(ge=1)


class ProfileOrder(Message):
    """Measure what this node does with the checkpoint, for requests of about these lengths.

    `kv_minimum`: KV cache that layers must leave room for, if a user chose it; null: the usual.
    `check`: time these steps alone, as they were measured of a node of the same kind.
    `engine`: what the model asks for; the node's own setting overrules it.
    """

    id: SmallCount
    checkpoint: str = Field(min_length=1)
    mean_prompt_tokens: float = Field(gt=0)
    mean_output_tokens: float = Field(gt=0)
    max_context_tokens: int = Field(ge=2)
    kv_minimum: KvMinimum | None = None
    check: tuple[MeasuredPoint, ...] = Field(default=(), max_length=MOST_CHECKED)
    engine: Engine = Engine.AUTO


class FittedEquation(Message):
    """Seconds of a step over `layers` layers: p0 b t + p1 b + p2 t + p3, and `several_s` more for
    two requests or more (`planner.latency_model`).

    Standard errors are in the parameters' units, null where there were too few points; the others
    are relative, of the points that were fitted.
    """

    layers: int = Field(ge=1, le=MOST_LAYERS)
    parameters: tuple[float, float, float, float]
    standard_errors: tuple[float, float, float, float] | None = None
    points: int = Field(ge=1)
    median_error: float = Field(ge=0)
    worst_error: float = Field(ge=0)
    several_s: float = Field(default=0.0, ge=0)


class NodeMeasurement(Message):
    """A compute profile and what it was made from.

    `memory`: what the model's ends leave; null from agents that do not know of it.
    `nic_bytes_per_s`: what the network card says it does, null where it does not. `seconds` went
    by, of them `waited_s` for traffic; `repeated` measurements were made again since traffic came.
    `checkpoint`, `dtype`, `bytes_per_layer` and `engine` say what was measured (empty: by an agent
    that did not say). `interpolation_error`
    estimates the largest relative error of decode steps between the sizes that were timed.
    """

    gpu: str = Field(max_length=120)
    vram_bytes: float = Field(gt=0)
    max_layers: int = Field(ge=1, le=MOST_LAYERS)
    tokens_per_s: tuple[float, ...] = Field(max_length=MOST_LAYERS)
    kv_capacity_token_layers: tuple[float, ...] = Field(max_length=MOST_LAYERS)
    layer_times: LayerTimes
    memory: NodeMemory | None = None
    prompt_fit: FittedEquation
    decode_fit: FittedEquation
    points: tuple[MeasuredPoint, ...] = Field(max_length=MOST_POINTS)
    nic_bytes_per_s: float | None = Field(default=None, gt=0)
    seconds: float = Field(default=0.0, ge=0)
    waited_s: float = Field(default=0.0, ge=0)
    repeated: SmallCount = 0
    checkpoint: str = ""
    dtype: str = Field(default="", max_length=40)
    bytes_per_layer: float | None = Field(default=None, gt=0)
    engine: str = Field(default="", max_length=40)
    interpolation_error: float | None = Field(default=None, ge=0)


class ProfilingProgress(Message):
    """How far the agent is with an order. `done` is a share; `message` why it waits or failed.

    A whole measurement ends with `measurement`, a check with the steps that it timed.
    """

    id: SmallCount
    phase: ProfilingPhase
    done: float = Field(default=0.0, ge=0, le=1.0)
    message: str = ""
    measurement: NodeMeasurement | None = None
    checked: tuple[MeasuredPoint, ...] = Field(default=(), max_length=MOST_CHECKED)
