"""Decides among trials by simulation: a heat for all that may win, a final for the best.

Where time is too short for both, the heat is as long as a final, and decides.

Every plan meets the same requests: the same seeds, windows in lifetimes of a request. In the heat,
with one seed, run the best by estimate and every guard (the baselines and what is known already),
then further challengers while there is time. The leaders, and every guard near them, run the final
with two other seeds. So no guard serves more than the winner under the policy, as far as both
were simulated. Where even short runs take too long, guards go first that are estimated far below.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from planner.domain.plan_forecast import SimulatedFigures
from planner.objectives.trial import Span, Trial, Trials
from planner.placers.stop import Stop
from planner.tuning.served import ContestTuning as tuned

_HEAT = Span(warm_up=tuned.HEAT_WARM_UP, window=tuned.HEAT_WINDOW)
FINAL = Span(warm_up=tuned.FINAL_WARM_UP, window=tuned.FINAL_WINDOW)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The winner; `figures` is None where the time allowed no simulation."""

    trial: Trial
    figures: SimulatedFigures | None


class Contest:
    """One decision, to be made in time."""

    def __init__(self, trials: Trials, *, seed: int) -> None:
        self._trials = trials
        self._seed = seed
        self._slowness = 1.0  # seconds taken per second expected

    def expected_s(self, best: Trial, guards: Sequence[Trial]) -> float:
        """About how long the heat of these and a final will take."""
        return self._heat_s([best, *guards], _HEAT) + self._finals_s(best, FINAL)

    def decide(
        self,
        ranked: Sequence[Trial],
        guards: Sequence[Trial],
        *,
        neighbours: Callable[[Trial], Iterable[Trial]],
        stop: Stop,
    ) -> Outcome:
        """`ranked` by estimate, best first; `neighbours` of the leader join while there is time."""
        due = [ranked[0], *(guard for guard in guards if guard is not ranked[0])]
        if self._heat_s(due, _HEAT) + self._finals_s(ranked[0], FINAL) > stop.left_s:
            due = [trial for trial in due if trial.value >= tuned.FAR_BELOW * ranked[0].value]
        final_s = self._finals_s(ranked[0], FINAL)
        has_final = self._heat_s(due, _HEAT) + final_s <= stop.left_s
        heat = _HEAT
        if not has_final:
            final_s = 0.0
            heat = FINAL.scaled(min(1.0, stop.left_s / self._heat_s(due, FINAL)))
        if heat.lifetimes < tuned.LEAST_LIFETIMES:
            return Outcome(trial=ranked[0], figures=None)
        standings = self._run_heat(due, heat, stop)
        if not standings:
            return Outcome(trial=ranked[0], figures=None)
        others = [trial for trial in ranked[1:] if trial not in due]
        before_final = stop.earlier(final_s)
        standings += self._run_heat(others, heat, before_final)
        standings = self._climb(standings, neighbours, heat, before_final)
        standings.sort(key=lambda standing: -self._value(standing))
        if not has_final or len(standings) < len(due):
            return standings[0]
        leader = self._value(standings[0])
        finalists = standings[: tuned.FINALISTS]
        finalists += [
            standing
            for standing in standings[tuned.FINALISTS :]
            if standing.trial in guards and self._value(standing) >= tuned.NEAR * leader
        ]
        return self._run_final(finalists, FINAL, stop)

    def _run_heat(self, trials: Iterable[Trial], span: Span, stop: Stop) -> list[Outcome]:
        """Those that were done in time and served anything."""
        standings = []
        for trial in trials:
            if self._is_late(trial, span, stop, seeds=1):
                break
            figures = self._simulated(trial, seeds=(self._seed,), span=span, stop=stop)
            if figures is not None:
                standings.append(Outcome(trial=trial, figures=figures))
        return standings

    def _climb(
        self,
        standings: list[Outcome],
        neighbours: Callable[[Trial], Iterable[Trial]],
        span: Span,
        stop: Stop,
    ) -> list[Outcome]:
        """The standings and those neighbours of leaders that took the lead."""
        leader = max(standings, key=self._value)
        is_better = True
        while is_better:
            is_better = False
            for trial in neighbours(leader.trial):
                found = self._run_heat([trial], span, stop)
                if self._is_late(trial, span, stop, seeds=1):
                    return [*standings, *(found if self._leads(found, leader) else [])]
                if self._leads(found, leader):
                    leader, is_better = found[0], True
                    standings = [*standings, leader]
                    break
        return standings

    def _leads(self, found: Sequence[Outcome], leader: Outcome) -> bool:
        return bool(found) and self._value(found[0]) > self._value(leader)

    def _run_final(self, finalists: Sequence[Outcome], span: Span, stop: Stop) -> Outcome:
        """The best of the finalists, the leader of the heat where time ends before all ran."""
        seeds = tuple(self._seed + number for number in range(1, 1 + tuned.FINAL_SEEDS))
        done: list[Outcome] = []
        for finalist in finalists:
            if self._is_late(finalist.trial, span, stop, seeds=tuned.FINAL_SEEDS):
                break
            figures = self._simulated(finalist.trial, seeds=seeds, span=span, stop=stop)
            if figures is not None:
                done.append(Outcome(trial=finalist.trial, figures=figures))
        if len(done) == len(finalists):
            return max(done, key=self._value)
        return done[0] if done else finalists[0]

    def _simulated(
        self, trial: Trial, *, seeds: Sequence[int], span: Span, stop: Stop
    ) -> SimulatedFigures | None:
        begun_s = stop.elapsed_s
        figures = self._trials.simulated(trial, seeds=seeds, span=span)
        expected_s = len(seeds) * self._trials.simulation_s(trial, span)
        taken_s = stop.elapsed_s - begun_s
        self._slowness = max(0.8 * self._slowness, taken_s / expected_s)
        return figures

    def _is_late(self, trial: Trial, span: Span, stop: Stop, *, seeds: int) -> bool:
        needed_s = seeds * self._slowness * self._trials.simulation_s(trial, span)
        return stop.is_cancelled() or needed_s > stop.left_s

    def _heat_s(self, trials: Sequence[Trial], span: Span) -> float:
        return sum(self._trials.simulation_s(trial, span) for trial in trials)

    def _finals_s(self, trial: Trial, span: Span) -> float:
        return tuned.FINALISTS * tuned.FINAL_SEEDS * self._trials.simulation_s(trial, span)

    def _value(self, outcome: Outcome) -> float:
        if outcome.figures is None:
            return 0.0
        return self._trials.value(outcome.trial.placement, outcome.figures.decode_tokens_per_s)
