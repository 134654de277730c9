"""Puts what the stages of a request reported onto one time line. Pure.

Durations come from the clock of one process each. Only how the time between two processes is
divided among links needs their clocks compared: along a path that leaves the coordinator and comes
back, and along every round of decoding, offsets cancel, so the parts always add up to the
end-to-end time. Where an imprecise offset makes a link take less than no time, its neighbours of
the same phase give what is missing.

A stage takes in what came during a step only after it. It says since when it had not looked, and a
transfer is then taken to have lasted as long as the quickest of its kind in this request, at least
what is certain; the rest is waiting at the node. A prompt has one transfer a link: the middle of
what is possible.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.domain.cluster import COORDINATOR
from runtime.coordinator.request_life import RequestLife
from runtime.protocol.request_trace import PartKind, PartPhase, TracePart, TraceRow
from runtime.protocol.stage_spans import StageSpans

# Longest number of bars in one row; more rounds than that are drawn several to a bar.
MAX_BARS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLine:
    """Parts that follow one another and sum up to the end-to-end time; rows to draw."""

    parts: tuple[TracePart, ...]
    rows: tuple[TraceRow, ...]


def assemble(
    life: RequestLife,
    told: Mapping[str, StageSpans],
    offsets_s: Mapping[str, float],
    *,
    ended_s: float,
) -> TimeLine:
    """Of a request that ended; `told` is of the last attempt, by node; `offsets_s` a node's clock
    minus ours."""
    line = _Line(arrived_s=life.arrived_at)
    waits = life.pipeline is None
    ends = [*(attempt.queued_s for attempt in life.attempts[1:]), life.queued_at if waits else None]
    for attempt, lost_s in zip(life.attempts, ends, strict=False):
        line.whole(PartKind.QUEUE, PartPhase.PROMPT, attempt.queued_s, attempt.routed_s)
        if lost_s is not None:
            line.whole(PartKind.LOST, PartPhase.PROMPT, attempt.routed_s, lost_s)
    if waits:
        line.whole(PartKind.QUEUE, PartPhase.PROMPT, life.queued_at, ended_s)
        return line.done()
    attempt = life.attempts[-1]
    tokens = life.token_times[attempt.tokens_before :]
    if not tokens or any(node not in told for node in attempt.nodes):
        line.whole(PartKind.UNMEASURED, PartPhase.PROMPT, attempt.routed_s, ended_s)
        return line.done()
    stages = [
        _Visit(name=node, spans=told[node], offset_s=offsets_s[node]) for node in attempt.nodes
    ]
    _sent_before_received(stages, routed_s=attempt.routed_s, token_times_s=tokens)
    _add_prompt(line, stages, routed_s=attempt.routed_s)
    recorded = min([len(tokens) - 1, *(len(stage.rounds) for stage in stages)])
    _add_rounds(line, stages, recorded)
    last_left_s = stages[-1].rounds[recorded - 1, _ENDED] if recorded else stages[-1].prompt_end_s
    last_here_s = tokens[recorded]
    line.transfer(stages[-1].name, COORDINATOR, last_left_s, last_here_s, recorded)
    line.whole(PartKind.UNMEASURED, PartPhase.DECODE, last_here_s, tokens[-1])
    line.whole(PartKind.ENDING, PartPhase.DECODE, tokens[-1], ended_s)
    return line.done()


def assemble_engines(life: RequestLife, *, ended_s: float) -> TimeLine:
    """The line of a request that whole-model instances answered, one node for each attempt.

    An engine does not tell what happens within it: from when it was asked until its first token,
    with the prompt, is one part, and from there to its last token another.
    """
    line, tokens = _Line(arrived_s=life.arrived_at), life.token_times
    asked_s = [attempt.routed_s for attempt in life.attempts]
    line.whole(PartKind.QUEUE, PartPhase.PROMPT, life.arrived_at, (*asked_s, ended_s)[0])
    for attempt, again_s in zip(life.attempts, asked_s[1:], strict=False):
        line.whole(
            PartKind.LOST, PartPhase.PROMPT, attempt.routed_s, again_s, node=attempt.nodes[0]
        )
    if asked_s:
        node, first_s = life.attempts[-1].nodes[0], (*tokens, ended_s)[0]
        line.whole(PartKind.ENGINE, PartPhase.PROMPT, asked_s[-1], first_s, node=node)
        if tokens:
            line.whole(
                PartKind.ENGINE,
                PartPhase.DECODE,
                first_s,
                tokens[-1],
                node=node,
                count=max(1, life.output_tokens),
            )
            line.whole(PartKind.ENDING, PartPhase.DECODE, tokens[-1], ended_s)
    return line.done()


def _sent_before_received(
    stages: Sequence["_Visit"], *, routed_s: float, token_times_s: Sequence[float]
) -> None:
    """Move all stages together until none acts on the prompt, or sends a token, out of turn."""
    sent_s = [stages[-1].prompt_end_s, *stages[-1].rounds[:, _ENDED]]
    early_s = max(sent - came for sent, came in zip(sent_s, token_times_s, strict=False))
    stays_s = sum(stage.prompt_end_s - stage.prompt_came_s for stage in stages)
    late_s = routed_s + stays_s - stages[-1].prompt_end_s
    if early_s > 0 or late_s > 0:
        shift_s = early_s if early_s > 0 else -min(late_s, -early_s)
        for stage in stages:
            stage.shift(shift_s)


_CAME, _UNSEEN, _BEGAN, _ENDED = range(4)


class _Visit:
    """What a stage reported, on the coordinator's clock."""

    def __init__(self, *, name: str, spans: StageSpans, offset_s: float) -> None:
        self.name = name
        self.spans = spans
        self.offset_s = 0.0
        self.rounds = spans.rounds
        self.shift(offset_s)

    def shift(self, seconds: float) -> None:
        """Earlier by `seconds`."""
        self.offset_s += seconds
        self.rounds = self.rounds - np.array([seconds, 0.0, seconds, seconds])

    @property
    def prompt_came_s(self) -> float:
        """When its last rows were taken in."""
        return self.spans.last_s - self.offset_s

    @property
    def prompt_end_s(self) -> float:
        chunks = self.spans.chunks
        return (chunks[-1].ended_s if chunks else self.spans.last_s) - self.offset_s


class _Line:
    def __init__(self, *, arrived_s: float) -> None:
        self._arrived_s = arrived_s
        self._parts: list[TracePart] = []
        self._rows: list[TraceRow] = []

    def done(self) -> TimeLine:
        return TimeLine(parts=tuple(self._parts), rows=tuple(self._rows))

    def add(
        self,
        node: str,
        kind: PartKind,
        phase: PartPhase,
        seconds: float,
        bars: tuple[NDArray[np.float64], NDArray[np.float64]],
        *,
        count: int = 1,
        to: str | None = None,
    ) -> None:
        """One part, and in a row of its own the bars from when to when; those without length are
        left out."""
        place = {"node": node, "to": to, "kind": kind, "phase": phase}
        self._parts.append(TracePart(**place, seconds=seconds, count=count))
        began_s, ended_s = bars
        spans = _bars(began_s - self._arrived_s, ended_s - self._arrived_s)
        if spans:
            self._rows.append(TraceRow(**place, spans=spans))

    def whole(
        self,
        kind: PartKind,
        phase: PartPhase,
        began_s: float,
        ended_s: float,
        *,
        node: str = COORDINATOR,
        count: int = 1,
    ) -> None:
        """One part and one bar; nothing for no time."""
        seconds = ended_s - began_s
        if seconds > 0:
            place = {"node": node, "kind": kind, "phase": phase}
            self._parts.append(TracePart(**place, seconds=seconds, count=count))
            times_s = (began_s - self._arrived_s, ended_s - self._arrived_s, seconds)
            span = (*(round(each, 6) for each in times_s), count)
            self._rows.append(TraceRow(**place, spans=(span,)))

    def transfer(self, node: str, to: str, left_s: float, came_s: float, rounds: int) -> None:
        """The way of the last token to the coordinator."""
        phase = PartPhase.DECODE if rounds else PartPhase.PROMPT
        bars = (np.array([left_s]), np.array([came_s]))
        self.add(node, PartKind.TRANSFER, phase, came_s - left_s, bars, to=to)


def _add_prompt(line: _Line, stages: Sequence[_Visit], *, routed_s: float) -> None:
    """The way of the prompt's last rows: they are what the first token waits for."""
    left_s = [routed_s, *(stage.prompt_end_s for stage in stages)]
    upper_s = np.array(
        [stage.prompt_came_s - left for stage, left in zip(stages, left_s, strict=False)]
    )
    upper_s = _none_negative(upper_s)
    unseen_s = np.array([stage.spans.last_unseen_s for stage in stages])
    transfers_s = (np.maximum(0.0, upper_s - unseen_s) + upper_s) / 2
    stays_s = np.array([stage.prompt_end_s - stage.prompt_came_s for stage in stages])
    at_nodes_s = stays_s + (upper_s - transfers_s)
    names = [COORDINATOR, *(stage.name for stage in stages)]
    phase = PartPhase.PROMPT
    for index, stage in enumerate(stages):
        began_s = left_s[index]
        came_s = began_s + float(transfers_s[index])
        at_node_s = float(at_nodes_s[index])
        compute_s = min(stage.spans.tail_compute_s, at_node_s)
        transferred = np.array([began_s]), np.array([came_s])
        line.add(
            names[index],
            PartKind.TRANSFER,
            phase,
            float(transfers_s[index]),
            transferred,
            to=stage.name,
        )
        chunks = stage.spans.chunks
        began = np.array([chunk.began_s for chunk in chunks]) - stage.offset_s
        ended = np.array([chunk.ended_s for chunk in chunks]) - stage.offset_s
        first_s = min(came_s, stage.spans.first_s - stage.offset_s)
        since_s = np.array([first_s, *ended])[: len(chunks)]
        line.add(stage.name, PartKind.WAIT, phase, at_node_s - compute_s, (since_s, began))
        line.add(stage.name, PartKind.COMPUTE, phase, compute_s, (began, ended), count=len(chunks))


def _add_rounds(line: _Line, stages: Sequence[_Visit], count: int) -> None:
    """Every token after the first: once round all stages, from sampling to sampling."""
    if count == 0:
        return
    last = stages[-1]
    back_s = np.concatenate([[last.prompt_end_s], last.rounds[: count - 1, _ENDED]])
    left_s = [back_s, *(stage.rounds[:count, _ENDED] for stage in stages)]
    uppers_s = [
        stage.rounds[:count, _CAME] - left for stage, left in zip(stages, left_s, strict=False)
    ]
    sums_s = np.array([upper.sum() for upper in uppers_s])
    shifts_s = (_none_negative(sums_s) - sums_s) / count
    phase = PartPhase.DECODE
    names = [last.name, *(stage.name for stage in stages)]
    for index, stage in enumerate(stages):
        began_s, ended_s = stage.rounds[:count, _BEGAN], stage.rounds[:count, _ENDED]
        upper_s = uppers_s[index] + shifts_s[index]
        certain_s = np.maximum(0.0, upper_s - stage.rounds[:count, _UNSEEN])
        each_s = np.clip(float(upper_s.min()), certain_s, upper_s)
        transfer_s = float(np.clip(each_s.sum(), 0.0, upper_s.sum()))
        compute_s = float((ended_s - began_s).sum())
        waiting_s = float(upper_s.sum()) - transfer_s
        waiting_s += float((began_s - stage.rounds[:count, _CAME]).sum())
        came_s = left_s[index] + each_s
        if names[index] != stage.name:
            bars, sender = (left_s[index], came_s), names[index]
            line.add(sender, PartKind.TRANSFER, phase, transfer_s, bars, count=count, to=stage.name)
        else:  # a pipeline of one stage hands its token to itself
            waiting_s += transfer_s
        line.add(stage.name, PartKind.WAIT, phase, waiting_s, (came_s, began_s), count=count)
        line.add(stage.name, PartKind.COMPUTE, phase, compute_s, (began_s, ended_s), count=count)


def _none_negative(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same sum, no term below zero; as they are if the sum itself is."""
    total = seconds.sum()
    if total < 0 or (seconds >= 0).all():
        return seconds
    scaled: NDArray[np.float64] = np.maximum(seconds, 0.0)
    scaled *= total / scaled.sum()
    return scaled


def _bars(
    began_s: NDArray[np.float64], ended_s: NDArray[np.float64]
) -> tuple[tuple[float, float, float, int], ...]:
    """Neighbours together as one bar where there are more than fit."""
    count = len(began_s)
    if not count:
        return ()
    each = max(1, -(-count // MAX_BARS))
    first = np.arange(0, count, each)
    last = np.minimum(first + each, count) - 1
    busy_s = np.add.reduceat(np.maximum(0.0, ended_s - began_s), first)
    times = np.stack([began_s[first], ended_s[last], busy_s]).round(6).tolist()
    return tuple(
        (begins, ends, busy, number)
        for begins, ends, busy, number in zip(*times, (last - first + 1).tolist(), strict=True)
        if busy > 0
    )
