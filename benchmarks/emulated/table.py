"""The comparison as text: lines for each run, then ours against the papers', then the bars."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.emulated.drive import Figures, Percentiles
from benchmarks.emulated.result import Foreseen, Result

HEADER = (
    f"{'run':<30}{'requests/s':>11}{'tokens/s':>10}{'TTFT p50':>10}{'p95':>7}"
    f"{'ITL p50':>9}{'p95':>7}{'TPOT p50':>10}{'p95':>7}{'running':>9}{'anew':>6}"
)
_LATENCIES = ("ttft", "itl", "tpot")
_LEAST_GAIN = 2.0
_LEAST_OF_BEST_CAP = 0.9
_MOST_RATE_ERROR = 0.1
_MOST_LATENCY_ERROR = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """A run of ours and the run of the papers' it is held against."""

    label: str
    ours: Result
    papers: Result


def result_lines(result: Result) -> Iterator[str]:
    run, row, foreseen = result.run, result.run.row, result.foreseen
    measured = run.measured
    rate = "-" if row.rate_per_s is None else f"{row.rate_per_s:.3f}"
    yield (
        f"{row.label:<30}{rate:>11}{_figures(measured)}{measured.begun_anew:>6}"
        f"   {run.cpu_s:.0f} CPU s"
        + (
            ""
            if run.micro_batches is None
            else f", M {run.micro_batches[0]:.1f} to {run.micro_batches[1]:.1f}"
        )
        + (f", {measured.requests_failed} FAILED" if measured.requests_failed else "")
    )
    yield f"{'  simulator':<41}{_figures(foreseen)}"
    ratios = f"{foreseen.output_tokens_per_s / measured.output_tokens_per_s:>10.3f}"
    for name, width in zip(_LATENCIES, (10, 9, 10), strict=True):
        ours, theirs = getattr(foreseen, name), getattr(measured, name)
        ratios += f"{ours.p50_s / theirs.p50_s:>{width}.3f}{ours.p95_s / theirs.p95_s:>7.2f}"
    yield f"{'  forecast / measured':<41}{ratios}"


def pairing_lines(pairings: Sequence[Pairing]) -> Iterator[str]:
    yield "ours / papers" + " " * 28 + f"{'tokens/s':>10}{'TTFT p95':>10}{'ITL p95':>10}"
    for pairing in pairings:
        yield (
            f"  {pairing.label:<39}{_gain(pairing):>10.2f}"
            f"{_p95_ratio(pairing, 'ttft'):>10.2f}{_p95_ratio(pairing, 'itl'):>10.2f}"
        )


def bar_lines(
    *, at_capacity: Sequence[Pairing], results: Iterable[Result], sweep: Sequence[Result]
) -> Iterator[str]:
    """What was wanted, what was found. `at_capacity`: pairings where each serves what it can."""
    found = list(results)
    gain = min(_gain(pairing) for pairing in at_capacity)
    yield _bar("ours / papers, tokens/s", gain, "at least", _LEAST_GAIN, met=gain >= _LEAST_GAIN)
    for name, title in (("ttft", "TTFT p95"), ("itl", "ITL p95")):
        most = max(_p95_ratio(pairing, name) for pairing in at_capacity)
        yield _bar(f"ours / papers, {title}", most, "at most", 1.0, met=most <= 1.0)
    if sweep:
        share = _share_of_best_cap(sweep)
        yield _bar(
            "controller / best fixed cap",
            share,
            "at least",
            _LEAST_OF_BEST_CAP,
            met=share >= _LEAST_OF_BEST_CAP,
        )
    yield from _error_bar("forecast error, tokens/s", found, _rate_error, _MOST_RATE_ERROR)
    yield from _error_bar("forecast error, latency", found, _latency_error, _MOST_LATENCY_ERROR)


def sweep_line(sweep: Sequence[Result]) -> str:
    rates = _rates(sweep)
    adaptive = rates.pop("adaptive")
    best = max(rates, key=lambda cap: rates[cap])
    return (
        f"controller {adaptive:.1f} tokens/s, best fixed cap ({best}) {rates[best]:.1f}: "
        f"{adaptive / rates[best]:.3f}"
    )


def _figures(found: Figures | Foreseen) -> str:
    return (
        f"{found.output_tokens_per_s:>10.1f}{_pair(found.ttft, 10)}{_pair(found.itl, 9)}"
        f"{_pair(found.tpot, 10)}{found.requests_running:>9.1f}"
    )


def _pair(spread: Percentiles, width: int) -> str:
    return f"{spread.p50_s:>{width}.3f}{spread.p95_s:>7.2f}"


def _gain(pairing: Pairing) -> float:
    return (
        pairing.ours.run.measured.output_tokens_per_s
        / pairing.papers.run.measured.output_tokens_per_s
    )


def _p95_ratio(pairing: Pairing, name: str) -> float:
    ours: Percentiles = getattr(pairing.ours.run.measured, name)
    papers: Percentiles = getattr(pairing.papers.run.measured, name)
    return ours.p95_s / papers.p95_s


def _rates(sweep: Sequence[Result]) -> dict[object, float]:
    return {result.run.row.decode_cap: result.run.measured.output_tokens_per_s for result in sweep}


def _share_of_best_cap(sweep: Sequence[Result]) -> float:
    rates = _rates(sweep)
    adaptive = rates.pop("adaptive")
    return adaptive / max(rates.values())


def _rate_error(result: Result) -> Mapping[str, float]:
    ratio = result.foreseen.output_tokens_per_s / result.run.measured.output_tokens_per_s
    return {"": abs(ratio - 1)}


def _latency_error(result: Result) -> Mapping[str, float]:
    errors = {}
    for name in _LATENCIES:
        for percentile in ("p50_s", "p95_s"):
            foreseen = getattr(getattr(result.foreseen, name), percentile)
            measured = getattr(getattr(result.run.measured, name), percentile)
            errors[f", {name.upper()} {percentile[:3]}"] = abs(foreseen / measured - 1)
    return errors


def _error_bar(
    title: str,
    results: Iterable[Result],
    errors_of: Callable[[Result], Mapping[str, float]],
    most: float,
) -> Iterator[str]:
    worst, where = max(
        (error, f"{result.run.row.label}{of}")
        for result in results
        for of, error in errors_of(result).items()
    )
    yield _bar(title, worst, "at most", most, met=worst <= most) + f" ({where})"


def _bar(title: str, value: float, relation: str, wanted: float, *, met: bool) -> str:
    return f"  {title:<32}{value:>7.3f}  {relation} {wanted:g}: {'met' if met else 'MISSED'}"
