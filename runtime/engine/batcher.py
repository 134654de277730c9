"""Picks the rows of the next step: decodes first, then the prompts that came first.

A pure decision over the sequences that have rows waiting. A request takes part at most once in a
step, with its oldest rows, so its rows are always run in order.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from runtime.engine.sequence import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """The next `n_tokens` rows of `sequence` run in this step."""

    sequence: Sequence
    n_tokens: int


def pick_step(
    sequences: Iterable[Sequence], *, max_batch_tokens: int, min_prefill_tokens: int
) -> list[Pick]:
    """Rows for one step, decodes in order of arrival, then prefills in order of their requests'.

    Decodes (rows behind the prompt) fill the budget first. The oldest prefill always takes part,
    so that a stage full of decodes still admits requests: on a request's first stage with at
    least `min_prefill_tokens`, on later ones with its whole chunk, as chunks are cut on the first
    stage (and where one exceeds the budget of a node with less memory). Beyond it, prefills join
    while they fit. The step exceeds the budget by that one prefill at most.
    """
    decodes: list[Sequence] = []
    prefills: list[Sequence] = []
    for sequence in sequences:
        if sequence.pending:
            is_prefill = sequence.pending[0].position < sequence.route.prompt_tokens
            (prefills if is_prefill else decodes).append(sequence)
    decodes.sort(key=lambda sequence: sequence.pending[0].arrival)
    prefills.sort(key=lambda sequence: sequence.arrival)
    picks = [
        Pick(sequence=sequence, n_tokens=sequence.pending[0].n_tokens)
        for sequence in decodes[:max_batch_tokens]
    ]
    room = max_batch_tokens - len(picks)
    for index, sequence in enumerate(prefills):
        waiting = min(sequence.pending[0].n_tokens, max_batch_tokens)
        if sequence.is_first_stage:
            at_least = min_prefill_tokens if index == 0 else 0
            n_tokens = min(waiting, max(room, at_least))
        else:
            n_tokens = waiting if index == 0 or waiting <= room else 0
        if n_tokens <= 0:
            break
        picks.append(Pick(sequence=sequence, n_tokens=n_tokens))
        room -= n_tokens
    return picks
