"""`planner compare` and `planner draw`."""

import csv
import io
import json
import re
from xml.etree import ElementTree

import pytest
from planner_commands import PROBLEM, only_line
from tiny_problems import placement, plan_by_hand

from planner.__main__ import main
from planner.max_flow import max_flow
from planner.placers.base import PLACERS
from planner.plan_options import BASELINES
from planner.serialization import plan_to_dict

SVG = "{http://www.w3.org/2000/svg}"


def test_compare_tabulates_the_baselines_the_solver_and_published_placements(
    problem_path, tmp_path, capsys
):
    placed = placement(n0=(0, 2), n1=(2, 4), n2=(2, 4))
    flow = max_flow(PROBLEM, placed, partial_inference=True).value_tokens_per_s
    published = tmp_path / "x.published.json"
    published.write_text(
        json.dumps(
            {
                "right": {"layers": placed.as_lists(), "max_flow_tokens_per_s": flow},
                "wrong": {"layers": placed.as_lists(), "max_flow_tokens_per_s": 2 * flow},
            }
        )
    )
    arguments = ["compare", str(problem_path), "--time-limit", "20"]
    assert main([*arguments, "--placements", str(published)]) == 0
    table = capsys.readouterr().out
    rows = [line.split()[0] for line in table.splitlines() if not line.startswith(" ")]
    assert rows[2:5] == ["separate_pipelines", "swarm", "petals"]
    assert "solve (" in table
    for name in ("separate_pipelines", "swarm", "petals"):
        assert "(seeds 1, 2)" in re.split(rf"\n{name} .*\n  forecast", table)[1]
    right, wrong = (line for line in table.splitlines() if line.startswith("published:"))
    assert f"{flow:.1f}" in right
    assert "differs by 0.000 %" in right
    assert "differs by 50.000 %" in wrong


def test_compare_says_how_to_simulate_the_baselines(problem_path, capsys):
    assert main(["compare", str(problem_path)]) == 0
    shown = capsys.readouterr().out
    assert "not simulated: give --time-limit to simulate" in shown
    assert "no time was left" not in shown


def test_compare_runs_each_placer_and_writes_them_as_json_and_csv(problem_path, capsys):
    arguments = ["compare", str(problem_path), "--objective", "flow", "--time-limit", "5"]
    assert main([*arguments, "--placers", "all", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    flows = {row["name"]: row["flow_tokens_per_s"] for row in shown["placements"]}
    by_placer = [name.split("(")[1].split(":")[0] for name in flows if name.startswith("solve")]
    assert by_placer == list(PLACERS)
    assert all(0 <= flow <= shown["bound_tokens_per_s"] * 1.0001 for flow in flows.values())
    assert max(flows.values()) == pytest.approx(60)  # the best of all placements
    assert main([*arguments, "--placers", "milp,region-chain", "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == len(BASELINES) + 2
    for row in rows[: len(BASELINES)]:
        assert float(row["flow_tokens_per_s"]) == flows[row["name"]]


def test_compare_draws_a_bar_for_each_placement(problem_path, capsys):
    assert main(["compare", str(problem_path), "--objective", "flow", "--svg"]) == 0
    picture = ElementTree.fromstring(capsys.readouterr().out)  # noqa: S314 - our own
    assert len(picture.findall(f"{SVG}rect")) == 1 + len(BASELINES)


def test_compare_refuses_an_unknown_placer(problem_path, capsys):
    assert main(["compare", str(problem_path), "--placers", "milp,oracle"]) == 2
    assert "'oracle'" in only_line(capsys.readouterr().err)


def test_draw_shows_every_node_at_its_layers_and_what_passes_between(problem_path, tmp_path):
    plan = plan_by_hand(PROBLEM, placement(n0=(0, 2), n1=(2, 4), n2=(2, 4)))
    path, output = tmp_path / "plan.json", tmp_path / "plan.svg"
    path.write_text(json.dumps(plan_to_dict(plan)))
    assert main(["draw", str(problem_path), str(path), "--output", str(output)]) == 0
    picture = ElementTree.fromstring(output.read_text())  # noqa: S314 - our own
    boxes = [
        (float(box.get("x")), float(box.get("width"))) for box in picture.findall(f"{SVG}rect")[1:]
    ]
    (left, half), *others = boxes
    assert others == [(left + half + 2, half)] * 2
    between = [edge for edge in plan.flow.edges if {edge.source, edge.target} <= {"n0", "n1", "n2"}]
    assert len(picture.findall(f"{SVG}line")) == len(between) == 2
    words = {text.text for text in picture.findall(f"{SVG}text")}
    for node in plan.flow.nodes.values():
        assert f"{node.flow_tokens_per_s:.1f} of {node.capacity_tokens_per_s:.1f}" in words


def test_a_published_placement_of_another_cluster_is_named(problem_path, tmp_path, capsys):
    published = tmp_path / "x.published.json"
    entry = {"layers": {"n9": [0, 4]}, "max_flow_tokens_per_s": 1.0}
    published.write_text(json.dumps({"theirs": entry}))
    assert main(["compare", str(problem_path), "--placements", str(published)]) == 2
    line = only_line(capsys.readouterr().err)
    assert "x.published.json: theirs: the placement gives layers [0, 4) to 'n9'" in line
