import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
import yaml
from planner_commands import PROBLEM, only_line, solved
from tiny_problems import placement, plan_by_hand, tiny_problem

from planner.__main__ import main
from planner.balanced_flow import balanced_flow
from planner.bounds.best import upper_bound_tokens_per_s
from planner.max_flow import max_flow
from planner.placers.budgeted_moves import moved_layers
from planner.serialization import plan_from_text, plan_to_dict, problem_to_dict

# 14 nodes of three kinds: far from proven optimal for as long as a test may last.
HARD = tiny_problem(
    [[100.0, 52.0, 33.0, 21.0], [70.0, 31.0, 19.0], [40.0, 17.0]] * 5,
    num_layers=23,
    link_tokens_per_s={(f"n{i}", f"n{i + 1}"): 9.0 + i for i in range(14)},
)


def test_solve_writes_a_plan_and_shows_progress(problem_path, tmp_path, capsys):
    output = tmp_path / "plan.json"
    arguments = ["solve", str(problem_path), "--time-limit", "20", "--output", str(output)]
    code = main([*arguments, "--objective", "flow"])
    captured = capsys.readouterr()
    assert code == 0
    plan = plan_from_text(output.read_text(), name_hint=str(output))
    again = balanced_flow(PROBLEM, plan.placement, partial_inference=True)
    assert plan.flow == again
    assert "tokens/s by" in only_line(captured.out)
    assert all("bound" in line and "gap" in line for line in captured.err.splitlines())
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_solve_reads_yaml(tmp_path):
    path = tmp_path / "problem.yaml"
    path.write_text(yaml.safe_dump(problem_to_dict(PROBLEM)))
    output = tmp_path / "plan.json"
    solved(path, output)


def test_solve_replaces_an_old_plan(problem_path, tmp_path):
    output = tmp_path / "plan.json"
    output.write_text("old")
    solved(problem_path, output)
    plan_from_text(output.read_text(), name_hint="plan.json")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["solve", "{tmp}/absent.json", "--output", "{tmp}/o"], ["absent.json", "No such file"]),
        (["solve", "{problem}"], ["required", "--output"]),
        (["solve", "{problem}", "--output", "{tmp}"], ["is a directory", "name a file"]),
        (["solve", "{problem}", "--output", "{tmp}/no/o"], ["is not a directory; create it"]),
        (["solve", "{problem}", "--output", "/dev/null"], ["/dev/null", "not a regular file"]),
        (["compare", "{tmp}"], ["is a directory", "name a file"]),
        (["solve", "{problem}", "--output", "{tmp}/o", "--time-limit", "0"], ["time_limit_s is 0"]),
        (["solve", "{problem}", "--output", "{tmp}/o", "--time-limit", "x"], ["invalid float"]),
        (["solve", "{problem}", "--output", "{tmp}/o", "--warm-start", "x"], ["warm_start is 'x'"]),
        (["solve", "{problem}", "--output", "{tmp}/o", "--solver", "x"], ["invalid choice: 'x'"]),
        (
            ["solve", "{problem}", "--output", "{tmp}/o", "--tensor-parallel", "2"],
            ["--tensor-parallel 2", "choose --method instances or mixed"],
        ),
        (["solve", "{latin1}", "--output", "{tmp}/o"], ["latin1.yaml", "not UTF-8"]),
        (["solve", "{broken}", "--output", "{tmp}/o"], ["broken.json: line 1", "not valid JSON"]),
        (
            ["solve", "{problem}", "--output", "{tmp}/o", "--exclude", "n9"],
            ["'n9' is excluded but is not a node"],
        ),
        (
            ["solve", "{problem}", "--output", "{tmp}/o", "--pin", "n1=0:3"],
            ["'n1' is pinned to 3 layers [0, 3)", "has memory for 2"],
        ),
        (["solve", "{problem}", "--output", "{tmp}/o", "--pin", "n1"], ["NODE=FIRST:END"]),
        (
            ["solve", "{problem}", "--output", "{tmp}/o", "--pin", "n1=2:1"],
            ["--pin is 'n1=2:1'", "[2, 1)", "empty"],
        ),
        (
            ["solve", "{problem}", "--output", "{tmp}/o", "--pin", "n1=0:1", "--pin", "n1=1:2"],
            ["'n1' is pinned to layers [0, 1) and to [1, 2)", "keep one"],
        ),
        (
            [
                *("solve", "{problem}", "--output", "{tmp}/o"),
                *("--max-layers", "n1=1", "--max-layers", "n1=2"),
            ],
            ["--max-layers of n1 is given twice"],
        ),
        (
            [
                *("solve", "{problem}", "--output", "{tmp}/o"),
                *("--max-layers", "1", "--max-layers", "2"),
            ],
            ["--max-layers of every node is given twice"],
        ),
        (["solve", "{problem}", "--output", "{tmp}/o", "--max-hops", "0"], ["max_hops is 0"]),
        (["solve", "{problem}", "--output", "{tmp}/o", "--max-hops", "1"], ["allow 2 hops"]),
        (["solve", "{problem}", "--output", "{tmp}/o", "--max-layers", "x"], ["NODE=COUNT"]),
        (["solve", "{problem}", "--output", "{tmp}/o", "--kv-reserve", "-1"], ["kv_reserve"]),
        (["solve", "{problem}", "--output", "{tmp}/o", "--objective", "x"], ["invalid choice"]),
        (["solve", "{problem}", "--output", "{tmp}/o", "--start", "{broken}"], ["broken.json"]),
        (["explain", "{problem}", "{tmp}/absent"], ["absent", "No such file"]),
        (["draw", "{problem}", "{broken}", "--output", "{tmp}/o.png"], ["o.png", ".svg"]),
        (["replan", "{problem}", "{broken}", "--output", "{tmp}/o"], ["broken.json: line 1"]),
        (["compare", "{broken}"], ["broken.json: line 1"]),
        (["compare", "{problem}", "--placements", "{broken}"], ["broken.json: line 1"]),
        (["improve", "{problem}"], ["invalid choice: 'improve'"]),
    ],
)
def test_bad_input_is_one_line_on_stderr_and_exit_code_2(
    problem_path, tmp_path, capsys, arguments, words
):
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    latin1 = tmp_path / "latin1.yaml"
    latin1.write_bytes(b"name: caf\xe9")
    places = {"tmp": tmp_path, "problem": problem_path, "broken": broken, "latin1": latin1}
    before = sorted(tmp_path.iterdir())
    try:
        code = main([argument.format(**places) for argument in arguments])
    except SystemExit as error:  # argparse's own way out
        code = error.code
    assert code == 2
    line = only_line(capsys.readouterr().err)
    for word in words:
        assert word in line
    assert sorted(tmp_path.iterdir()) == before


def test_a_cluster_that_cannot_hold_the_model_is_bad_input(tmp_path, capsys):
    path = tmp_path / "small.json"
    path.write_text(json.dumps(problem_to_dict(tiny_problem([[9.0]], num_layers=3))))
    assert main(["solve", str(path), "--output", str(tmp_path / "plan.json")]) == 2
    assert "can hold 1 layers but model 'tiny-model' has 3" in only_line(capsys.readouterr().err)
    assert not (tmp_path / "plan.json").exists()


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_search_and_keeps_the_best_plan_so_far(tmp_path, number):
    path = tmp_path / "hard.json"
    path.write_text(json.dumps(problem_to_dict(HARD)))
    output = tmp_path / "plan.json"
    command = [sys.executable, "-m", "planner", "solve", str(path)]
    process = subprocess.Popen(
        [*command, "--time-limit", "300", "--output", str(output), "--solver", "highs"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    try:
        assert "tokens/s" in process.stderr.readline()
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, err
    assert "the best plan so far is kept" in err
    assert "stopped: cancelled" in out
    assert plan_from_text(output.read_text(), name_hint="plan.json").stop_reason == "cancelled"


@pytest.mark.processes
def test_a_reader_that_has_enough_is_no_error(problem_path):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "planner", "compare", str(problem_path), "--time-limit", "1"],
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.processes
def test_ctrl_c_before_there_is_a_plan_is_one_line_and_exit_code_130(tmp_path):
    path = tmp_path / "problem.fifo"
    os.mkfifo(path)
    process = subprocess.Popen(
        [sys.executable, "-m", "planner", "solve", str(path), "--output", str(tmp_path / "p.json")],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        # A shell that runs these tests in the background has them ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        with path.open("w"):  # opens once the command has come to read its problem
            process.send_signal(signal.SIGINT)
        # The end of the file wakes a command whom the signal met just before it went to read.
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert err == "planner: interrupted before there was a result\n"


def test_ctrl_c_while_commands_are_imported_is_no_traceback(monkeypatch, capsys):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr("planner.__main__._commands", interrupted)
    assert main(["solve"]) == 130
    assert only_line(capsys.readouterr().err) == "planner: interrupted before there was a result"


def test_rules_on_the_command_line_hold_in_the_plan(problem_path, tmp_path):
    options = ["--pin", "n1=2:4", "--exclude", "n2", "--max-layers", "n0=2", "--max-hops", "3"]
    plan = solved(problem_path, tmp_path / "plan.json", *options)
    assert str(plan.placement.layers["n1"]) == "[2, 4)"
    assert "n2" not in plan.placement.layers
    assert len(plan.placement.layers["n0"]) <= 2
    assert plan.hops <= 3
    one = solved(problem_path, tmp_path / "plan.json", "--max-layers", "2", "--max-layers", "n0=1")
    assert {name: len(held) for name, held in one.placement.layers.items()}["n0"] == 1
    assert max(len(held) for held in one.placement.layers.values()) <= 2


def test_a_kv_reserve_keeps_layers_off_nodes(problem_path, tmp_path):
    # Every node has room for 1000 token-layers of KV, whatever it holds.
    plan = solved(problem_path, tmp_path / "plan.json", "--kv-reserve", "500")
    assert max(len(held) for held in plan.placement.layers.values()) == 2


def test_a_search_goes_on_from_an_earlier_plan(problem_path, tmp_path, capsys):
    first = solved(problem_path, tmp_path / "first.json")
    capsys.readouterr()
    again = solved(problem_path, tmp_path / "again.json", "--start", str(tmp_path / "first.json"))
    assert again.flow.value_tokens_per_s >= first.flow.value_tokens_per_s * (1 - 1e-9)
    assert capsys.readouterr().err.splitlines()[0].endswith("  start")


def test_progress_is_json_lines_when_piped(problem_path, tmp_path, capsys):
    plan = solved(problem_path, tmp_path / "plan.json", "--progress")
    captured = capsys.readouterr()
    records = [json.loads(line) for line in captured.out.splitlines()]
    assert captured.err == ""
    flows = [record["flow_tokens_per_s"] for record in records]
    assert flows == sorted(flows)
    assert records[-1]["output"] == str(tmp_path / "plan.json")
    assert records[-1]["gap"] == pytest.approx(plan.gap)
    assert {"elapsed_s", "upper_bound_tokens_per_s", "placer"} <= set(records[0])


def test_progress_is_one_line_written_over_on_a_terminal(
    problem_path, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    solved(problem_path, tmp_path / "plan.json", "--progress")
    out = capsys.readouterr().out
    live, summary = out.rstrip("\n").split("\n")
    assert live.startswith("\r")
    assert "bound" in live
    assert "tokens/s by" in summary


def test_explain_tells_the_cut_the_worst_loss_and_what_one_more_brings(
    problem_path, tmp_path, capsys
):
    output = tmp_path / "plan.json"
    plan = solved(problem_path, output)
    capsys.readouterr()
    assert main(["explain", str(problem_path), str(output)]) == 0
    words = capsys.readouterr().out
    assert f"The flow of {plan.flow.value_tokens_per_s:.1f} tokens/s" in words
    assert "the worst loss" in words
    assert "+1 p(100.0, 60.0, 30.0) in here" in words


def test_a_plan_made_without_partial_inference_is_explained_without_it(
    problem_path, tmp_path, capsys
):
    # Only with partial inference can n2 go on after n0.
    output = tmp_path / "plan.json"
    plan = plan_by_hand(PROBLEM, placement(n0=(0, 2), n1=(2, 4), n2=(1, 3), n3=(3, 4)))
    output.write_text(json.dumps(plan_to_dict(plan)))
    with_it = max_flow(PROBLEM, plan.placement, partial_inference=True)
    assert with_it.value_tokens_per_s > plan.flow.value_tokens_per_s
    assert main(["explain", str(problem_path), str(output)]) == 0
    assert f"The flow of {plan.flow.value_tokens_per_s:.1f} tokens/s" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["replan", "explain"])
def test_a_plan_of_another_model_is_refused(problem_path, tmp_path, capsys, command):
    running = tmp_path / "running.json"
    solved(problem_path, running)
    other = tmp_path / "other.json"
    model = replace(PROBLEM.model, name="other", num_layers=3)
    other.write_text(json.dumps(problem_to_dict(replace(PROBLEM, model=model))))
    capsys.readouterr()
    options = ["--output", str(tmp_path / "new.json")] if command == "replan" else []
    assert main([command, str(other), str(running), *options]) == 2
    line = only_line(capsys.readouterr().err)
    assert "running.json is a plan of model 'tiny-model' with 4 layers" in line
    assert "the problem's model is 'other' with 3" in line


def test_replan_moves_no_more_than_the_budget(problem_path, tmp_path, capsys):
    running, output = tmp_path / "running.json", tmp_path / "new.json"
    solved(problem_path, running)
    lost = replace(PROBLEM, cluster=PROBLEM.cluster.without({"n3"}))
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(problem_to_dict(lost)))
    arguments = ["replan", str(changed), str(running), "--output", str(output)]
    assert main([*arguments, "--budget-gb", "0.001", "--solver", "highs"]) == 0
    plan = plan_from_text(output.read_text(), name_hint=str(output))
    assert plan.flow == balanced_flow(lost, plan.placement, partial_inference=True)
    assert (
        moved_layers(
            plan_from_text(running.read_text(), name_hint="r.json").placement, plan.placement
        )
        <= 1
    )
    assert "<- chosen" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("objective", "unit"), [("decode", " decode tokens/s"), ("flow", " tokens/s")]
)
def test_a_plan_that_survives_says_how_much_of_its_objective(
    problem_path, tmp_path, capsys, objective, unit
):
    asked = ["--survive-one-loss", "--objective", objective]
    plan = solved(problem_path, tmp_path / "plan.json", *asked)
    assert plan.placer.startswith("robust by ")
    assert (plan.forecast is None) == (objective == "flow")
    told = capsys.readouterr().err
    assert re.search(rf"[\d.]+{unit} survive the loss of any one node", told)
    assert re.search(r"survives +[\d.]+ +[\d.]+ tokens/s", told)


@pytest.mark.parametrize("command", ["replan", "solve"])
def test_the_bound_of_a_plan_is_that_of_what_the_rules_leave(
    problem_path, tmp_path, capsys, command
):
    running, output = tmp_path / "running.json", tmp_path / "new.json"
    solved(problem_path, running)
    arguments = {"replan": [str(running)], "solve": ["--survive-one-loss", "--objective", "flow"]}
    options = ["--exclude", "n3", "--output", str(output), "--time-limit", "1"]
    assert main([command, str(problem_path), *arguments[command], *options]) == 0
    plan = plan_from_text(output.read_text(), name_hint=str(output))
    left = replace(PROBLEM, cluster=PROBLEM.cluster.without({"n3"}))
    assert plan.upper_bound_tokens_per_s == upper_bound_tokens_per_s(left)
    assert plan.upper_bound_tokens_per_s < upper_bound_tokens_per_s(PROBLEM)


def test_mix_writes_a_plan_for_each_model(problem_path, tmp_path, capsys):
    other = replace(PROBLEM, model=replace(PROBLEM.model, name="lab/other", num_layers=2))
    (tmp_path / "other.json").write_text(json.dumps(problem_to_dict(other)))
    problems = [str(problem_path), str(tmp_path / "other.json")]
    options = ["--weights", "1,2", "--time-limit", "10", "--output", str(tmp_path)]
    assert main(["mix", *problems, *options]) == 0
    plans = [
        plan_from_text((tmp_path / f"{name}.plan.json").read_text(), name_hint="p.json")
        for name in ("tiny-model", "lab--other")
    ]
    assert set(plans[0].placement.layers).isdisjoint(plans[1].placement.layers)
    assert all(plan.forecast.objective == "decode" for plan in plans)
    assert "least decode / weight" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("weights", "words"),
    [("1", "1 numbers for 2 problems"), ("1,x", "write numbers"), ("1,1", "name them apart")],
)
def test_a_mix_that_makes_no_sense_is_bad_input(problem_path, tmp_path, capsys, weights, words):
    arguments = ["mix", str(problem_path), str(problem_path), "--output", str(tmp_path)]
    assert main([*arguments, "--weights", weights]) == 2
    assert words in only_line(capsys.readouterr().err)


def test_solve_forecasts_what_the_plan_serves_and_says_what_the_times_are(
    problem_path, tmp_path, capsys
):
    output = tmp_path / "plan.json"
    arguments = ["solve", str(problem_path), "--time-limit", "20", "--output", str(output)]
    assert main(arguments) == 0
    captured = capsys.readouterr()
    plan = plan_from_text(output.read_text(), name_hint=str(output))
    assert plan.forecast.objective == "decode"
    assert plan.forecast.simulated.decode_tokens_per_s == plan.forecast.value
    assert "derived layer times" in captured.out
    assert "simulated, a short run:" in captured.out
    assert all("forecast" in line for line in captured.err.splitlines())
    for search in ([], ["--search", "0.02"]):
        assert main(["explain", str(problem_path), str(output), *search]) == 0
        assert "by the objective 'decode'" in capsys.readouterr().out


@pytest.mark.slow
def test_solve_forecasts_by_measured_times_where_it_is_given_them(problem_path, tmp_path, capsys):
    times = tmp_path / "times.csv"
    times.write_text(
        "model,gpu,phase,batch_tokens,time_ms_per_layer\n"
        "tiny-model,test,prompt,250,10.0\ntiny-model,test,decode,2,5.0\n"
    )
    output = tmp_path / "plan.json"
    arguments = ["solve", str(problem_path), "--time-limit", "20", "--output", str(output)]
    assert main([*arguments, "--layer-times", str(times)]) == 0
    assert "measured layer times" in capsys.readouterr().out
    assert main([*arguments, "--batch-limits", str(times)]) == 2
    assert "--layer-times; give both" in only_line(capsys.readouterr().err)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--objective", "latency"], "without a limit"),
        (["--objective", "fewest_nodes"], "without a demand"),
        (["--objective", "fewest_nodes", "--demand", "0"], "demand_tokens_per_s is 0"),
        (["--ttft-limit", "1"], "it is for 'latency' only"),
        (["--objective", "cost"], "give it or its compute profile"),
    ],
)
def test_an_objective_that_lacks_what_it_needs_is_refused(
    problem_path, tmp_path, capsys, options, word
):
    output = tmp_path / "plan.json"
    assert main(["solve", str(problem_path), "--output", str(output), *options]) == 2
    assert word in only_line(capsys.readouterr().err)


@pytest.mark.parametrize(
    ("demand", "said"), [("1e9", "of the demand"), ("1e-3", "the demand is met, idle nodes: {}")]
)
def test_a_plan_of_fewest_nodes_says_whether_its_demand_is_met(
    problem_path, tmp_path, capsys, demand, said
):
    asked = ["--objective", "fewest_nodes", "--demand", demand]
    plan = solved(problem_path, tmp_path / "plan.json", *asked)
    idle = len(PROBLEM.cluster.nodes) - len(plan.placement.layers)
    assert said.format(idle) in capsys.readouterr().out
