"""The comparison of predicted and measured, on what would be kept of a run."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.predictions.four_nodes import forecast_of, main
from planner.placers.base import NeverCancelled
from planner.plan_options import PlanOptions
from planner.planning import compute_plan
from planner.serialization import plan_to_dict, problem_from_dict
from tests.helixweb.conftest import TINY_PROBLEM


def kept(streams: int) -> dict[str, Any]:
    """What a run would have kept that went exactly as predicted."""
    document = copy.deepcopy(TINY_PROBLEM)
    plan = compute_plan(
        problem_from_dict(document),
        options=PlanOptions(objective="flow", time_limit_s=1),
        progress=lambda _: None,
        cancel=NeverCancelled(),
    )
    found: dict[str, Any] = {"problem": document, "plan": plan_to_dict(plan), "measurements": {}}
    answered = {
        "asked_s": 0.0, "first_s": 1.0, "last_s": 2.0, "prompt_tokens": 64, "output_tokens": 32,
    }  # fmt: skip
    run = {
        "streams": streams, "seconds": 10.0, "tokens_per_s": 1.0, "answered": [answered],
        "failed": 0, "stats_before": {}, "stats_after": {}, "page": [],
    }  # fmt: skip
    foreseen = forecast_of(found, run)
    answered["first_s"] = foreseen.ttft.p50_s
    answered["last_s"] = foreseen.ttft.p50_s + 31 * foreseen.tpot.p50_s
    run["tokens_per_s"] = foreseen.decode_tokens_per_s
    return found | {"runs": [run]}


@pytest.mark.parametrize(
    ("faster", "status"),
    [pytest.param(1.0, 0, id="as predicted"), pytest.param(0.8, 1, id="a fifth slower")],
)
def test_what_is_further_off_than_wanted_ends_with_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], faster: float, status: int
) -> None:
    found = kept(streams=3)
    found["runs"][0]["tokens_per_s"] *= faster
    file = tmp_path / "kept.json"
    file.write_text(json.dumps(found))
    assert main(["--from", str(file)]) == status
    told = capsys.readouterr().out
    assert "3 streams, 1 answers, 0 failed" in told
    assert f"off by {1 / faster - 1:+6.1%}" in told


def test_a_request_that_failed_is_not_what_was_wanted(tmp_path: Path) -> None:
    found = kept(streams=3)
    found["runs"][0]["failed"] = 1
    file = tmp_path / "kept.json"
    file.write_text(json.dumps(found))
    assert main(["--from", str(file)]) == 1
