"""Teaches the tiny checkpoint a few answers by heart, so that the demo's chat can be read.

Legend: B dialogues, S tokens of the longest, T = B S rows, N heads, K KV heads, H head size,
V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from runtime.models.checkpoint import Piece
from runtime.models.compact_decoder import build_decoder, stack_layer
from runtime.models.config import CompactConfig
from runtime.models.decoder import AttentionRule
from runtime.models.ranks import ALONE
from runtime.models.sharding import WHOLE
from runtime.models.tiny_checkpoint import Dialogue, EncodedDialogue

_IGNORED = -100  # cross_entropy's mark for rows without a target

DIALOGUES = (
    Dialogue(
        question="What is HelixWeb?",
        answer="HelixWeb serves a large language model on many unequal machines at once.",
    ),
    Dialogue(question="Hello!", answer="Hello! Ask me how HelixWeb works."),
    Dialogue(
        question="Who are you?",
        answer="I am a very small model whose layers live on several machines.",
    ),
    Dialogue(
        question="How does HelixWeb place layers?",
        answer="It computes a maximum flow and gives each node the layers that let most pass.",
    ),
    Dialogue(
        question="What is a pipeline?",
        answer="The stages one request visits, so that every layer runs once and in order.",
    ),
    Dialogue(
        question="What is a stage?",
        answer="A process that holds some layers of the model and runs them.",
    ),
    Dialogue(
        question="What is the KV cache?",
        answer="The keys and values of past tokens, kept in pages so that none runs twice.",
    ),
    Dialogue(
        question="What limits the flow?",
        answer="The minimum cut: the nodes and links that are full while others wait.",
    ),
    Dialogue(
        question="Where did this answer run?",
        answer="Each token went through all layers, spread over several processes.",
    ),
    Dialogue(
        question="What is partial inference?",
        answer="A node runs only some of its layers for a request that comes in the middle.",
    ),
)


class TrainingFell(Exception):
    """The loss became no number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """Full-batch AdamW until the mean loss of the answers is at `target_loss` or `max_steps`.

    `report(step, loss)` is called after each step. Steps, not seconds, so that the same machine
    makes the same file again.
    """

    max_steps: int
    target_loss: float
    learning_rate: float
    report: Callable[[int, float], None]

    def __call__(
        self,
        config: CompactConfig,
        tensors: dict[str, Tensor],
        examples: tuple[EncodedDialogue, ...],
    ) -> dict[str, Tensor]:
        """A `Train`. Raises TrainingFell."""
        inputs_BS, targets_BS = _batch(examples)
        positions_T = torch.arange(inputs_BS.shape[1]).repeat(len(examples))
        parameters = {name: value.clone().requires_grad_() for name, value in tensors.items()}
        optimizer = torch.optim.AdamW(
            parameters.values(), lr=self.learning_rate, betas=(0.9, 0.95), weight_decay=0.0
        )
        warmup_steps = max(1, self.max_steps // 10)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: min(1.0, (step + 1) / warmup_steps)
        )
        for step in range(1, self.max_steps + 1):
            logits_TV = _logits(config, parameters, inputs_BS, positions_T)
            loss = functional.cross_entropy(logits_TV, targets_BS.flatten(), ignore_index=_IGNORED)
            value = loss.item()
            if value != value:  # NaN
                raise TrainingFell(
                    f"the loss is no number after {step} steps; lower the learning rate "
                    f"of {self.learning_rate}"
                )
            self.report(step, value)
            if value <= self.target_loss:
                break
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0)
            optimizer.step()
            schedule.step()
        return {name: value.detach() for name, value in parameters.items()}


def _batch(examples: tuple[EncodedDialogue, ...]) -> tuple[Tensor, Tensor]:
    """Inputs [B, S] and, shifted by one, targets [B, S] where an answer token is to follow."""
    length = max(len(each.prompt_ids) + len(each.answer_ids) for each in examples) - 1
    inputs_BS = torch.zeros(len(examples), length, dtype=torch.int64)
    targets_BS = torch.full_like(inputs_BS, _IGNORED)
    for row, each in enumerate(examples):
        whole = torch.tensor(each.prompt_ids + each.answer_ids)
        answer_start = len(each.prompt_ids) - 1
        inputs_BS[row, : len(whole) - 1] = whole[:-1]
        targets_BS[row, answer_start : len(whole) - 1] = whole[answer_start + 1 :]
    return inputs_BS, targets_BS


def _logits(
    config: CompactConfig, tensors: dict[str, Tensor], inputs_BS: Tensor, positions_T: Tensor
) -> Tensor:
    def stack(pieces: Sequence[Piece]) -> Tensor:
        return torch.cat([tensors[piece.name] for piece in pieces])

    layers = {layer: stack_layer(config, layer, stack, WHOLE) for layer in range(config.num_layers)}
    decoder = build_decoder(
        config, layers=layers, stack=stack, ranks=ALONE, device=torch.device("cpu")
    )
    batch, length = inputs_BS.shape

    def attend(
        _layer: int, query_TNH: Tensor, key_TKH: Tensor, value_TKH: Tensor, rule: AttentionRule
    ) -> Tensor:
        query_BNSH, key_BKSH, value_BKSH = (
            rows.reshape(batch, length, -1, config.head_size).transpose(1, 2)
            for rows in (query_TNH, key_TKH, value_TKH)
        )
        attended_BNSH = functional.scaled_dot_product_attention(
            query_BNSH, key_BKSH, value_BKSH, is_causal=True, scale=rule.scale, enable_gqa=True
        )
        return attended_BNSH.transpose(1, 2).flatten(0, 1)

    hidden_TD = decoder.embed(inputs_BS.flatten())
    rotation = decoder.rotation(positions_T)
    for layer in range(config.num_layers):
        hidden_TD = decoder.run_layer(layer, hidden_TD, rotation=rotation, attend=attend)
    return decoder.logits(hidden_TD)
