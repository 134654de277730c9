"""The memory of a node that holds layers of a model, in bytes: the one model of it there is.

A stage's memory holds the weights of its layers, the embedding if the first layer is among them and
the output head if the last one is, the activations of one step, a reserve, and KV cache. What the
first four leave is KV cache, and it must be at least a stated minimum. Stages, profiles, estimates
from data sheets and refusals all count by this, so a number that one of them names suffices for the
others.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from planner.domain.node_memory import EndRoom, KvMinimum, NodeMemory
from planner.domain.problem import Workload

ENDS = ((False, False), (True, False), (False, True), (True, True))
"""(holds the first layer, holds the last): in the order of `planner.capacity.LayerLimits`."""

DEFAULT_KV_REQUESTS = 8
_LOGIT_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """Memory of a stage in bytes; `kv_minimum` is the least useful KV cache."""

    weights: float
    activations: float
    kv_minimum: float
    reserve: float = 0.0

    @property
    def fixed(self) -> float:
        """Bytes of all but KV cache."""
        return self.weights + self.activations + self.reserve

    @property
    def needed(self) -> float:
        """The least budget that suffices."""
        return self.fixed + self.kv_minimum

    def kv_bytes(self, budget_bytes: float) -> float:
        """Bytes that a budget leaves for KV cache; below 0 if even the rest does not fit."""
        return budget_bytes - self.fixed


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShape:
    """Sizes of a decoder that a step's activations depend on; `element_bytes` of one number."""

    hidden_size: int
    intermediate_size: int
    query_size: int
    kv_size: int
    vocab_size: int
    element_bytes: int

    def activation_bytes(self, rows: int, *, context_tokens: float, has_head: bool) -> float:
        """Upper estimate of what one step needs beside weights and pages.

        A step has `rows` decodes at most, and one prefill of as many tokens. Per row: hidden states
        before, normed and after, and the larger of attention's (fused query/key/value, their
        rotated copies) and the MLP's (gate and up, their product). Once: keys and values gathered
        for one context. Where the head is: logits for each row of a decode-only step, in the
        model's own type and in float32.
        """
        attention = 3 * (self.query_size + 2 * self.kv_size)
        per_row = 3 * self.hidden_size + max(attention, 4 * self.intermediate_size)
        gathered = 4 * context_tokens * self.kv_size
        logits = rows * self.vocab_size if has_head else 0
        own_type = self.element_bytes if self.element_bytes < _LOGIT_BYTES else 0
        head = logits * (_LOGIT_BYTES + own_type)
        return (2 * rows * per_row + gathered) * self.element_bytes + head


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMemory:
    """Memory of a model on one kind of node, in bytes.

    `first`, `last` and `both` are the weights that a stage with these ends of the model holds
    beside its layers: with tied embeddings `both` is less than the sum. A step needs `activations`,
    and `head_activations` more where the last layer is. `kv_token` is one token's KV cache in one
    layer; it comes in pages of `page_tokens`.
    """

    num_layers: int
    layer: float
    first: float
    last: float
    both: float
    kv_token: float
    kv_minimum: KvMinimum
    page_tokens: int = 1
    activations: float = 0.0
    head_activations: float = 0.0
    reserve: float = 0.0

    def stage(self, layers: int, *, has_first: bool, has_last: bool) -> StageMemory:
        """Memory of a stage of so many layers with those ends."""
        ends = {(True, False): self.first, (False, True): self.last, (True, True): self.both}
        pages = -(-self.kv_minimum.tokens // self.page_tokens) * self.kv_minimum.requests
        return StageMemory(
            weights=layers * self.layer + ends.get((has_first, has_last), 0.0),
            activations=self.activations + (self.head_activations if has_last else 0.0),
            reserve=self.reserve,
            kv_minimum=pages * layers * self.page_tokens * self.kv_token,
        )

    def kv_room_token_layers(self, budget_bytes: float, stage: StageMemory) -> float:
        """KV room of a stage within a budget, in tokens x layers; whole pages only."""
        page = self.page_tokens * self.kv_token
        return max(0.0, stage.kv_bytes(budget_bytes) // page * self.page_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRoom:
    """Layers and KV room within a budget: the memory part of a compute profile.

    `kv_token_layers[j-1]` is the KV room beside j layers in the middle of the model.
    """

    max_layers: int
    kv_token_layers: tuple[float, ...]
    memory: NodeMemory


def node_room(
    memory_of: Callable[[int, bool, bool], ModelMemory],
    *,
    budget_bytes: float,
    num_layers: int,
) -> NodeRoom:
    """Room by `memory_of(layers, has_first, has_last)`, which may use smaller steps if needed.

    An end's KV room is counted at its scarcest number of layers.
    """
    rooms: list[list[float]] = []
    for has_first, has_last in ENDS:
        room: list[float] = []
        for layers in range(1, num_layers + 1):
            model = memory_of(layers, has_first, has_last)
            stage = model.stage(layers, has_first=has_first, has_last=has_last)
            if stage.needed > budget_bytes:
                break
            room.append(model.kv_room_token_layers(budget_bytes, stage))
        rooms.append(room)
    middle, *at_ends = rooms
    first, last, both = (
        EndRoom(
            max_layers=len(room),
            kv_token_layers_less=max(
                (most - kept for most, kept in zip(middle, room, strict=False)), default=0.0
            ),
        )
        for room in at_ends
    )
    model = memory_of(1, False, False)
    return NodeRoom(
        max_layers=len(middle),
        kv_token_layers=tuple(middle),
        memory=NodeMemory(
            first=first,
            last=last,
            both=both,
            kv_minimum=model.kv_minimum,
            reserve_bytes=model.reserve,
        ),
    )


def least_ends(num_layers: int) -> tuple[bool, bool]:
    """The ends that a single layer has where it takes least: none, if the model has a middle."""
    return (num_layers == 1, num_layers <= 2)


def kv_minimum(
    workload: Workload,
    *,
    longest_tokens: int | None = None,
    requests: int = DEFAULT_KV_REQUESTS,
    tokens: int | None = None,
) -> KvMinimum:
    """`requests` of `tokens` (None: the workload's mean), or one of the longest if that is more."""
    mean = math.ceil(workload.mean_prompt_tokens + workload.mean_output_tokens)
    asked = KvMinimum(requests=requests, tokens=tokens or mean)
    if longest_tokens is not None and longest_tokens > asked.requests * asked.tokens:
        return KvMinimum(requests=1, tokens=longest_tokens)
    return asked
