"""Teaches the tiny checkpoint a few answers by heart, so that the demo's chat can be read.

Legend: B dialogues, S tokens of the longest, V vocabulary.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

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
    """Trains the model of `transformers` by full-batch AdamW.

    Until the mean loss of the answers is at `target_loss`, or for `max_steps`.
    `report(step, loss)` is called after each step. Steps, not seconds, so that the same machine
    makes the same file again.
    """

    max_steps: int
    target_loss: float
    learning_rate: float
    report: Callable[[int, float], None]

    def __call__(
        self,
        raw_config: Mapping[str, Any],
        tensors: dict[str, Tensor],
        examples: tuple[EncodedDialogue, ...],
    ) -> dict[str, Tensor]:
        """A `Train`. Raises TrainingFell."""
        from transformers import AutoConfig, AutoModelForCausalLM  # take seconds

        inputs_BS, targets_BS = _batch(examples)
        model: Any = AutoModelForCausalLM
        model = model.from_config(AutoConfig.for_model(**raw_config))
        model.load_state_dict(tensors, strict=False)  # a tied head is the embedding
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=self.learning_rate, betas=(0.9, 0.95), weight_decay=0.0
        )
        warmup_steps = max(1, self.max_steps // 10)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: min(1.0, (step + 1) / warmup_steps)
        )
        for step in range(1, self.max_steps + 1):
            logits_BSV = model(input_ids=inputs_BS, use_cache=False).logits
            loss = functional.cross_entropy(
                logits_BSV.flatten(0, 1), targets_BS.flatten(), ignore_index=_IGNORED
            )
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
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        trained: dict[str, Tensor] = model.state_dict()
        return {name: trained[name] for name in tensors}


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
