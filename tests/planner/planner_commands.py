"""What tests of the planner's commands share: a small problem, and a plan of it by `solve`."""

from tiny_problems import tiny_problem

from planner.__main__ import main
from planner.serialization import plan_from_text

PROBLEM = tiny_problem(
    [[100.0, 60.0, 30.0], [50.0, 24.0], [50.0, 24.0], [30.0, 10.0]], num_layers=4
)


def only_line(text):
    lines = text.splitlines()
    assert len(lines) == 1, text
    return lines[0]


def solved(problem_path, output, *options):
    arguments = ["solve", str(problem_path), "--time-limit", "20", "--output", str(output)]
    assert main([*arguments, "--objective", "flow", *options]) == 0
    return plan_from_text(output.read_text(), name_hint=str(output))
