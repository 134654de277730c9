"""`planner simulate` from files to figures, and what it says of bad ones."""

import csv
import dataclasses
import json
import re

import pytest
from tiny_problems import one_hop_plan, placement, plan_by_hand, tiny_problem

from planner.__main__ import main
from planner.commands.files import read_plan
from planner.commands.request_rows import COLUMNS
from planner.serialization import plan_to_dict, problem_to_dict

PROBLEM = tiny_problem([[100.0, 60.0], [100.0, 60.0], [50.0, 24.0]], num_layers=4)


@pytest.fixture
def files(tmp_path):
    plan = plan_by_hand(PROBLEM, placement(n0=(0, 2), n1=(2, 4), n2=(2, 4)))
    problem_path, plan_path = tmp_path / "problem.json", tmp_path / "plan.json"
    problem_path.write_text(json.dumps(problem_to_dict(PROBLEM)))
    plan_path.write_text(json.dumps(plan_to_dict(plan)))
    return [str(problem_path), str(plan_path)]


def simulated(files, capsys, *options):
    code = main(["simulate", *files, "--warm-up", "5", "--window", "60", *options])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return captured.out


def refused(files, capsys, *options):
    code = main(["simulate", *files, "--warm-up", "5", "--window", "60", *options])
    captured = capsys.readouterr()
    assert code == 2
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    return captured.err


def test_a_forecast_names_what_it_stands_on_and_its_percentiles(files, capsys):
    text = simulated(files, capsys)
    assert "runtime policy, iwrr on plan weights, requests always waiting" in text
    assert "derived layer times" in text
    for word in ("TTFT", "ITL", "TPOT", "end to end", "KV peak", "n0"):
        assert word in text


def test_weights_computed_anew_keep_the_hop_limit_of_the_plan(tmp_path, capsys):
    problem, plan = one_hop_plan()
    files = [str(tmp_path / "problem.json"), str(tmp_path / "plan.json")]
    for path, document in zip(files, (problem_to_dict(problem), plan_to_dict(plan)), strict=True):
        with open(path, "w") as file:
            json.dump(document, file)
    by_routing = {}
    for routing in ("plan", "balanced", "max_flow"):
        document = json.loads(simulated(files, capsys, "--routing", routing, "--json"))
        by_routing[routing] = document["decode_tokens_per_s"]
        assert document["nodes"]["n1"]["utilisation"] == 0
    assert len(set(by_routing.values())) == 1
    assert main(["explain", *files]) == 0
    assert "The flow of 10.0 tokens/s" in capsys.readouterr().out


def test_instances_are_said_to_be_simulated_as_stages(tmp_path, capsys):
    problem = tiny_problem([[100.0, 60.0, 40.0, 30.0]], num_layers=4)
    problem_path, plan_path = str(tmp_path / "problem.json"), str(tmp_path / "plan.json")
    (tmp_path / "problem.json").write_text(json.dumps(problem_to_dict(problem)))
    solved = ["--method", "instances", "--time-limit", "1", "--output", plan_path]
    assert main(["solve", problem_path, *solved]) == 0
    plan = read_plan(tmp_path / "plan.json")
    (instance,) = plan.instances
    text = simulated([problem_path, plan_path], capsys)
    assert "the instances of n0 are simulated as stages that hold all layers" in text
    assert f"write {instance.output_tokens_per_s:.1f} output tokens/s" in text


@pytest.mark.parametrize("policy", ["runtime", "published"])
@pytest.mark.parametrize(
    "workload",
    [
        ("--workload", "backlog"),
        ("--workload", "poisson", "--rate", "0.5"),
        ("--workload", "bursts", "--rate", "0.5", "--burst-size", "3"),
        ("--workload", "poisson", "--share", "0.5", "--router", "random"),
    ],
)
def test_the_same_seed_gives_the_same_forecast_as_json(files, capsys, policy, workload):
    options = ("--policy", policy, *workload, "--json", "--seed")
    first, again, other = (simulated(files, capsys, *options, seed) for seed in ("1", "1", "2"))
    assert first == again != other
    document = json.loads(first)
    assert document["policy"] == policy
    assert document["decode_tokens_per_s"] > 0
    assert set(document["nodes"]) == {"n0", "n1", "n2"}


def test_traces_are_read_from_files(files, capsys, tmp_path):
    arrivals, trace = tmp_path / "arrivals.csv", tmp_path / "lengths.csv"
    arrivals.write_text("interval_idx_3s,arrivals\n0,2\n1,0\n2,4\n")
    trace.write_text("input_len,output_len\n12,5\n7,9\n")
    options = ("--workload", "trace", "--arrivals", str(arrivals), "--rate", "0.4")
    out = simulated(files, capsys, *options, "--lengths", str(trace), "--json")
    assert json.loads(out)["rate_requests_per_s"] == 0.4
    trace.write_text("input_len,output_len\n12,5\n7,-9\n")
    message = refused(files, capsys, *options, "--lengths", str(trace))
    assert "row 3: output_len is -9" in message
    trace.write_text("input_len,output_len\n12,5\n700,90\n")
    message = refused(files, capsys, "--lengths", str(trace), "--context", "512")
    assert "row 3: 700 prompt and 90 output tokens are more than the context of 512" in message
    assert "no room on any route" in refused(files, capsys, "--lengths", str(trace))


def test_a_rate_or_a_share_is_asked_for_where_requests_arrive(files, capsys):
    assert "--rate or --share" in refused(files, capsys, "--workload", "poisson")
    both = ("--workload", "poisson", "--rate", "1", "--share", "0.5")
    assert "--rate or --share" in refused(files, capsys, *both)
    assert "--arrivals" in refused(files, capsys, "--workload", "trace", "--rate", "1")
    assert "rate_per_s is 0" in refused(files, capsys, "--workload", "bursts", "--rate", "0")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--rate", "3"), "--rate is 3 but in a backlog requests always wait"),
        (("--share", "0.5"), "--share is 0.5 but in a backlog requests always wait"),
        (("--arrivals", "counts.csv"), "--arrivals counts.csv is for --workload trace"),
        (("--context", "512"), "--context is 512 but there is no trace"),
    ],
)
def test_options_that_the_workload_would_pass_over_are_refused(files, capsys, options, message):
    assert message in refused(files, capsys, *options)


def test_a_plan_without_routing_weights_is_refused_unless_others_are_asked_for(
    files, capsys, tmp_path
):
    with open(files[1]) as file:
        plan = json.load(file)
    path = tmp_path / "bare.json"
    path.write_text(json.dumps({**plan, "routing_weights": {}}))
    assert "no routing weights" in refused([files[0], str(path)], capsys)
    simulated([files[0], str(path)], capsys, "--routing", "balanced")


def test_a_forecast_whose_kv_room_runs_out_says_so(files, capsys, tmp_path):
    trace = tmp_path / "lengths.csv"
    trace.write_text("input_len,output_len\n5,4\n")
    calm = ("--workload", "poisson", "--rate", "1", "--lengths", str(trace))
    assert "lost its KV pages" not in simulated(files, capsys, *calm)
    trace.write_text("input_len,output_len\n5,4000\n")
    assert "times a request lost its KV pages" in simulated(
        files, capsys, "--lengths", str(trace), "--window", "600"
    )


def test_every_request_is_written_as_a_row_with_its_path_and_waits(files, capsys, tmp_path):
    path = tmp_path / "requests.csv"
    text = simulated(files, capsys, "--workload", "poisson", "--rate", "2", "--requests", str(path))
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(COLUMNS)
    assert len(rows) >= int(re.search(r"(\d+) requests finished", text)[1]) > 50
    assert len({row["request"] for row in rows}) == len(rows)
    for row in rows:
        hops, waits = row["path"].split(), row["hop_waits_s"].split()
        assert hops[0] == "n0[0:2]"
        assert hops[1] in ("n1[2:4]", "n2[2:4]")
        assert len(waits) == len(hops)
        assert min(map(float, waits)) >= 0
        times = ("arrival_s", "admitted_s", "first_token_s", "finished_s")
        assert sorted(times, key=lambda key: float(row[key])) == list(times)


def test_a_folder_that_is_not_there_is_named(files, capsys, tmp_path):
    path = tmp_path / "nowhere" / "requests.csv"
    assert str(path) in refused(files, capsys, "--requests", str(path))


def test_a_plan_that_lacks_layers_is_refused_by_the_first(files, capsys, tmp_path):
    problem = dataclasses.replace(PROBLEM, model=dataclasses.replace(PROBLEM.model, num_layers=6))
    path = tmp_path / "larger.json"
    path.write_text(json.dumps(problem_to_dict(problem)))
    message = refused([str(path), files[1]], capsys)
    assert "no node holds layer 4 (2 of 6 layers are missing)" in message
