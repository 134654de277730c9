"""What the comparison of emulated clusters keeps, and how it judges."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.emulated.drive import Figures, Percentiles
from benchmarks.emulated.policies import Row
from benchmarks.emulated.result import Foreseen, Result, ResultsFile, ResultsRefused, Run
from benchmarks.emulated.table import Pairing, bar_lines, pairing_lines, result_lines, sweep_line

SECOND = Percentiles(p50_s=1.0, p95_s=2.0)
ROW = Row(
    label="ours, saturated",
    policy="ours",
    rate_per_s=None,
    decode_cap=None,
    warm_up_s=1.0,
    window_s=2.0,
)


def result(
    *,
    row: Row = ROW,
    tokens_per_s: float = 100.0,
    foreseen_tokens_per_s: float | None = None,
    ttft: Percentiles = SECOND,
    foreseen_ttft: Percentiles | None = None,
) -> Result:
    return Result(
        run=Run(
            row=row,
            measured=Figures(
                output_tokens_per_s=tokens_per_s,
                ttft=ttft,
                itl=SECOND,
                tpot=SECOND,
                requests_finished=3,
                requests_running=4.5,
                requests_failed=0,
                begun_anew=0,
                window_s=2.0,
            ),
            cpu_s=0.5,
            micro_batches=(2.0, 6.0),
        ),
        foreseen=Foreseen(
            output_tokens_per_s=foreseen_tokens_per_s or tokens_per_s,
            ttft=foreseen_ttft or ttft,
            itl=SECOND,
            tpot=SECOND,
            requests_running=4.4,
        ),
    )


def capped(cap: float | str, tokens_per_s: float) -> Result:
    return result(row=replace(ROW, label=f"cap {cap}", decode_cap=cap), tokens_per_s=tokens_per_s)


def test_a_stopped_comparison_finds_what_was_measured_before(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    first = ResultsFile(path, of="two 1234")
    first.put(result())
    first.put(capped(4.0, 90.0))
    again = ResultsFile(path, of="two 1234")
    assert again.find(ROW) == result().run
    assert again.find(replace(ROW, decode_cap=4.0, label="cap 4.0")) == capped(4.0, 90.0).run
    assert again.find(replace(ROW, window_s=3.0)) is None


def test_a_row_is_kept_once(tmp_path: Path) -> None:
    file = ResultsFile(tmp_path / "results.json", of="two 1234")
    file.put(result(foreseen_tokens_per_s=50.0))
    file.put(result(foreseen_tokens_per_s=60.0))
    assert (tmp_path / "results.json").read_text().count('"foreseen"') == 1


def test_results_of_other_parameters_are_not_mixed_in(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    ResultsFile(path, of="two 1234").put(result())
    with pytest.raises(ResultsRefused, match=r"two 1234, not two 5678.*--output"):
        ResultsFile(path, of="two 5678")


@pytest.mark.parametrize("text", ["{", "[]", '{"of": "two", "results": [{"run": 1}]}'])
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(ResultsRefused, match=r"results\.json holds no results"):
        ResultsFile(path, of="two 1234")


def test_a_run_has_its_figures_its_forecast_and_their_ratio() -> None:
    measured, foreseen, ratio = result_lines(result(foreseen_tokens_per_s=105.0))
    assert measured.split()[:6] == ["ours,", "saturated", "-", "100.0", "1.000", "2.00"]
    assert measured.endswith("0   0 CPU s, M 2.0 to 6.0")
    assert foreseen.split()[:2] == ["simulator", "105.0"]
    assert ratio.split()[3:6] == ["1.050", "1.000", "1.00"]


def test_ours_is_held_against_the_papers() -> None:
    slow = Percentiles(p50_s=1.0, p95_s=4.0)
    pairing = Pairing(label="saturated", ours=result(tokens_per_s=250.0), papers=result(ttft=slow))
    assert list(pairing_lines([pairing]))[1].split() == ["saturated", "2.50", "0.50", "1.00"]


def test_every_bar_tells_what_was_found_and_whether_it_is_met() -> None:
    pairing = Pairing(label="saturated", ours=result(tokens_per_s=150.0), papers=result())
    late = Percentiles(p50_s=1.3, p95_s=2.0)
    found = [result(foreseen_tokens_per_s=95.0), result(foreseen_ttft=late)]
    sweep = [capped("adaptive", 85.0), capped("off", 70.0), capped(4.0, 100.0)]
    lines = list(bar_lines(at_capacity=[pairing], results=found, sweep=sweep))
    assert [line.rsplit(None, 4)[-4:] for line in lines[:4]] == [
        ["at", "least", "2:", "MISSED"],
        ["at", "most", "1:", "met"],
        ["at", "most", "1:", "met"],
        ["at", "least", "0.9:", "MISSED"],
    ]
    assert "0.050  at most 0.1: met (ours, saturated)" in lines[4]
    assert "0.300  at most 0.2: MISSED (ours, saturated, TTFT p50)" in lines[5]
    assert sweep_line(sweep).endswith("best fixed cap (4.0) 100.0: 0.850")
