"""Decides among trials by simulation: a heat for all that may win, a final for the best.

Where time is too short for both, the heat is as long as a final if it can, and decides. Short runs
show the ramp, in which plans of few requests lead: of het42's two best by 0.8 + 0.6 lifetimes both
serve 1140, by 1.2 + 1.3 one 1150 and one 1410. So a heat has 1.4 lifetimes, and one that decides 2.

Every plan meets the same requests: the same seeds, windows in lifetimes of a request. In the heat,
with one seed, run the best by estimate and every guard (the baselines and what is known already)
that is not estimated far below, then some challengers and neighbours of the leader while there is
time. The leaders, and every guard near them, run the final with other seeds. So no guard serves
more than the winner under the policy, as far as both were simulated.
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
        return self._heat_s(_due(best, guards), _HEAT) + self._final_s(best, tuned.FINALS[0])

    def decide(
        self,
        ranked: Sequence[Trial],
        guards: Sequence[Trial],
        *,
        neighbours: Callable[[Trial], Iterable[Trial]],
        stop: Stop,
    ) -> Outcome:
        """`ranked` by estimate, best first; `neighbours` of the leader join while there is time."""
        best, heat = ranked[0], _HEAT
        due = _due(best, guards)
        due_s = self._heat_s(due, heat)
        finals = [
            final
            for final in tuned.FINALS
            if self._final_s(best, final)
            <= min(stop.left_s - due_s, tuned.FINAL_SHARE * stop.left_s)
        ]
        final_s = self._final_s(best, finals[0]) if finals else 0.0
        if not finals:
            share = tuned.MARGIN * stop.left_s / self._heat_s(due, FINAL)
            heat = FINAL.scaled(min(1.0, max(tuned.LEAST_SHARE_OF_FINAL, share)))
        before_final = stop.earlier(final_s)
        standings = self._run_heat(due, heat, before_final)
        least = tuned.NEAR * best.value
        others = [one for one in ranked[1:] if one not in due and one.value >= least]
        standings += self._run_heat(others[: tuned.BEFORE_NEIGHBOURS], heat, before_final)
        standings = self._climb(standings, neighbours, heat, before_final)
        standings += self._run_heat(others[tuned.BEFORE_NEIGHBOURS :], heat, before_final)
        standings.sort(key=lambda standing: -self._value(standing))
        if all(standing.trial is not best for standing in standings) and (
            not standings or self._value(standings[0]) < tuned.SURE * best.value
        ):
            return Outcome(trial=best, figures=None)
        if not finals:
            return standings[0]
        finalists, seeds = finals[0]
        leader = self._value(standings[0])
        nearby = [
            standing
            for standing in standings[finalists:]
            if standing.trial in guards and self._value(standing) >= tuned.NEAR * leader
        ]
        return self._run_final([*standings[:finalists], *nearby], seeds, stop)

    def _run_heat(self, trials: Iterable[Trial], span: Span, stop: Stop) -> list[Outcome]:
        """Outcomes of trials that ended in time and served anything."""
        standings = []
        for trial in trials:
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
        """The standings and those neighbours of leaders that took the lead.

        Ends where none did for a while, or time does.
        """
        if not standings:
            return standings
        leader = max(standings, key=self._value)
        idle = 0
        while idle < tuned.IDLE_PASSES and not self._is_late(
            leader.trial, span, stop, seeds=(self._seed,)
        ):
            idle += 1
            for trial in neighbours(leader.trial):
                found = self._run_heat([trial], span, stop)
                if found and self._value(found[0]) > self._value(leader):
                    leader, idle = found[0], 0
                    standings = [*standings, leader]
                    break
                if self._is_late(trial, span, stop, seeds=(self._seed,)):
                    break
        return standings

    def _run_final(self, finalists: Sequence[Outcome], count: int, stop: Stop) -> Outcome:
        """The best by its final, or by its heat where time was too short for its final: plans that
        serve more requests at once take longer to simulate."""
        span, seeds = FINAL, tuple(range(self._seed + 1, self._seed + 1 + count))
        done: list[Outcome] = []
        for finalist in finalists:
            figures = self._simulated(finalist.trial, seeds=seeds, span=span, stop=stop)
            done.append(Outcome(trial=finalist.trial, figures=figures) if figures else finalist)
        return max(done, key=self._value)

    def _simulated(
        self, trial: Trial, *, seeds: Sequence[int], span: Span, stop: Stop
    ) -> SimulatedFigures | None:
        expected_s = self._trials.simulation_s(trial, span, seeds=seeds)
        begun_s = stop.elapsed_s
        figures = self._trials.simulated(
            trial,
            seeds=seeds,
            span=span,
            is_in_time=lambda needed_s: self._is_in_time(needed_s, stop),
        )
        taken_s = stop.elapsed_s - begun_s
        if figures is not None and expected_s > 0:
            self._slowness = max(0.8 * self._slowness, taken_s / expected_s)
        return figures

    def _is_late(self, trial: Trial, span: Span, stop: Stop, *, seeds: Sequence[int]) -> bool:
        return not self._is_in_time(self._trials.simulation_s(trial, span, seeds=seeds), stop)

    def _is_in_time(self, needed_s: float, stop: Stop) -> bool:
        return not stop.is_cancelled() and self._slowness * needed_s <= stop.left_s

    def _heat_s(self, trials: Sequence[Trial], span: Span) -> float:
        return sum(self._trials.simulation_s(one, span, seeds=(self._seed,)) for one in trials)

    def _final_s(self, trial: Trial, final: tuple[int, int]) -> float:
        finalists, seeds = final
        return finalists * seeds * self._trials.simulation_s(trial, FINAL) / tuned.MARGIN

    def _value(self, outcome: Outcome) -> float:
        if outcome.figures is None:
            return 0.0
        return self._trials.value(outcome.trial.placement, outcome.figures.decode_tokens_per_s)


def _due(best: Trial, guards: Sequence[Trial]) -> list[Trial]:
    """The best by estimate, and the guards that may serve more, those of more first."""
    near = [one for one in guards if one is not best and one.value >= tuned.FAR_BELOW * best.value]
    return [best, *sorted(near, key=lambda guard: -guard.value)]
