"""Picks the rows of the next step: by default decodes first, then the prompts that came first.

A pure decision over the sequences that have rows waiting. A request takes part at most once in a
step, with its oldest rows, so its rows are always run in order.
"""

from collections.abc import Collection
from dataclasses import dataclass

from runtime.engine.sequence import Sequence
from runtime.protocol.engine_options import EngineOptions, PromptRule, StepOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """The next `n_tokens` rows of `sequence` run in this step."""

    sequence: Sequence
    n_tokens: int


def pick_step(
    waiting: Collection[Sequence],
    *,
    max_batch_tokens: int,
    min_prefill_tokens: int,
    decode_cap: int | None,
    options: EngineOptions,
    first_rows: int | None = None,
) -> list[Pick]:
    """Rows for one step out of those that wait, in the order of `options`.

    At most `decode_cap` decodes (rows behind the prompt) take part, and prefills while they fit
    beside them in `max_batch_tokens`, by the rules of `_prompt_tokens`; no younger prefill passes
    one that does not fit. The step exceeds `max_batch_tokens` by `min_prefill_tokens` of prefills
    at most (or by `options.prefill_tokens`). Prompts that begin here get at most `first_rows` of
    it, None: all there is room for.
    """
    prefills = [sequence for sequence in waiting if sequence.is_prefilling]
    oldest_prefill = min(prefills, key=lambda sequence: sequence.arrival, default=None)
    picks: list[Pick] = []
    rows = 0
    prompt_room = options.prefill_tokens
    decodes = prompts = 0
    prompts_blocked = False
    for sequence in sorted(waiting, key=_ORDERS[options.order]):
        if not sequence.is_prefilling:
            if rows < max_batch_tokens and decodes != decode_cap:
                picks.append(Pick(sequence=sequence, n_tokens=sequence.pending[0].n_tokens))
                decodes += 1
                rows += 1
            continue
        if prompts_blocked or prompts == options.max_prompts:
            continue
        runs_alone = sequence.is_first_stage and sequence.is_last_stage
        most_rows = 2 * max_batch_tokens if runs_alone else max_batch_tokens
        left = most_rows - rows if prompt_room is None else prompt_room
        if sequence.is_first_stage and first_rows is not None:
            if first_rows <= 0:
                continue
            left = min(left, first_rows)
        n_tokens = _prompt_tokens(
            sequence,
            is_oldest=sequence is oldest_prefill,
            room=left,
            most_rows=most_rows,
            min_prefill_tokens=min_prefill_tokens,
            rule=options.prompts,
        )
        if n_tokens <= 0:
            prompts_blocked = True
            continue
        picks.append(Pick(sequence=sequence, n_tokens=n_tokens))
        prompts += 1
        if sequence.is_first_stage and first_rows is not None:
            first_rows -= n_tokens
        if prompt_room is None:
            rows += n_tokens
        else:
            prompt_room -= n_tokens
    return picks


def _decodes_first(sequence: Sequence) -> tuple[bool, int]:
    """Decodes as their rows came, then prefills as their requests did."""
    if sequence.is_prefilling:
        return True, sequence.arrival
    return False, sequence.pending[0].arrival


def _as_arrived(sequence: Sequence) -> tuple[bool, int]:
    return False, sequence.pending[0].arrival


_ORDERS = {StepOrder.DECODES_FIRST: _decodes_first, StepOrder.ARRIVAL: _as_arrived}


def _prompt_tokens(
    sequence: Sequence,
    *,
    is_oldest: bool,
    room: int,
    most_rows: int,
    min_prefill_tokens: int,
    rule: PromptRule,
) -> int:
    """How many rows of this prompt run now; 0 or less when there is no room for any.

    Prefills whose route has no other stage fit in twice as many rows: no stage waits for them, and
    with fewer, larger steps decodes wait less often. The oldest prefill always takes part, so that
    a stage full of decodes still admits requests: on a request's first stage with at least
    `min_prefill_tokens`, on later ones with its whole chunk, as chunks are cut on the first stage
    (and where one exceeds the budget of a node with less memory). One that a step has room for but
    for its decodes is not cut so that less than `min_prefill_tokens` are left: they would take a
    step of their own.
    """
    waiting = sequence.pending[0].n_tokens
    if rule is PromptRule.CHUNKED:
        waiting = min(waiting, most_rows)
        if sequence.is_first_stage:
            most = max(room, min_prefill_tokens if is_oldest else 0)
            fits_alone = sequence.pending[0].n_tokens <= most_rows
            leaves_a_crumb = most > 0 and waiting - most < min_prefill_tokens
            return waiting if fits_alone and leaves_a_crumb else min(waiting, most)
    return waiting if is_oldest or waiting <= room else 0
