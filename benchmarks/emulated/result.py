"""What a run of the comparison found, and the file that keeps it."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from benchmarks.emulated.drive import Figures, Percentiles
from benchmarks.emulated.policies import Case, Row
from planner.simulator.forecast import Forecast, Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """The simulator's figures of the same requests in the same window."""

    output_tokens_per_s: float
    ttft: Percentiles
    itl: Percentiles
    tpot: Percentiles
    requests_running: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What clients saw, and what it cost. `micro_batches`: least and most of the stages' at the
    end; None without the controller."""

    row: Row
    measured: Figures
    cpu_s: float
    micro_batches: tuple[float, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A run beside its forecast."""

    run: Run
    foreseen: Foreseen


class ResultsRefused(Exception):
    """A file of results that these cannot be added to."""


class ResultsFile:
    """Results of one case and one set of parameters as JSON; written again after each run, so that
    a comparison that was stopped goes on where it was."""

    def __init__(self, path: Path | None, *, of: str) -> None:
        """`of` is the `fingerprint` of what is run. Raises ResultsRefused for a file of another."""
        self._path = path
        self._of = of
        self._results: list[Result] = []
        if path is not None and path.exists():
            self._results = _read(path, of=of)

    def find(self, row: Row) -> Run | None:
        """What an earlier call measured for the same row."""
        return next((result.run for result in self._results if result.run.row == row), None)

    def put(self, result: Result) -> None:
        """Keep it, in place of one for the same row."""
        self._results = [other for other in self._results if other.run.row != result.run.row]
        self._results.append(result)
        if self._path is not None:
            kept = {"of": self._of, "results": _RESULTS.dump_python(self._results, mode="json")}
            self._path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def fingerprint(case: Case, parameters: Mapping[str, Any]) -> str:
    """Tells cases and parameters apart."""
    told = repr((case, sorted(parameters.items())))
    return f"{case.problem.name} {hashlib.sha256(told.encode()).hexdigest()[:16]}"


def foreseen(forecast: Forecast) -> Foreseen:
    return Foreseen(
        output_tokens_per_s=forecast.decode_tokens_per_s,
        ttft=_percentiles(forecast.ttft),
        itl=_percentiles(forecast.itl),
        tpot=_percentiles(forecast.tpot),
        requests_running=forecast.requests_running,
    )


def _percentiles(spread: Spread) -> Percentiles:
    return Percentiles(p50_s=spread.p50_s, p95_s=spread.p95_s)


def _read(path: Path, *, of: str) -> list[Result]:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        results, known = _RESULTS.validate_python(kept["results"]), kept["of"]
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise ResultsRefused(f"{path} holds no results of this program: {error}") from error
    if known != of:
        raise ResultsRefused(
            f"{path} holds results of another case or other parameters ({known}, not {of}); "
            "give another --output"
        )
    return list(results)


_RESULTS: TypeAdapter[Sequence[Result]] = TypeAdapter(
    Sequence[Result], config=ConfigDict(ser_json_inf_nan="constants")
)
