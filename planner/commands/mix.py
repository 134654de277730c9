"""`planner mix`: several models on one cluster, a plan file for each."""

import argparse
from pathlib import Path

from planner.commands.files import check_writable, write_plan
from planner.commands.forecasts import value_text
from planner.commands.options import (
    add_objective_options,
    add_search_options,
    plan_options,
    timed_problem,
)
from planner.commands.progress import Interrupt
from planner.domain.errors import InvalidProblem
from planner.multi_model.plan_models import plan_models
from planner.multi_model.shares import ModelShare, served_by


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "problems",
        type=Path,
        nargs="+",
        metavar="PROBLEM",
        help="a problem for each model, all on the same nodes",
    )
    add_search_options(command, time_limit_s=60.0)
    add_objective_options(command)
    command.add_argument(
        "--weights",
        metavar="W,W,...",
        help="each model's share of what is served (default: all 1)",
    )
    command.add_argument(
        "--output", type=Path, required=True, metavar="DIRECTORY", help="gets MODEL.plan.json files"
    )


def run(parsed: argparse.Namespace) -> None:
    options = plan_options(parsed, objective="decode")
    problems = [timed_problem(parsed, path) for path in parsed.problems]
    weights = _weights(parsed.weights, count=len(problems))
    names = [problem.model.name for problem in problems]
    for name in names:
        if names.count(name) > 1:
            raise InvalidProblem(f"two problems have a model named {name!r}; name them apart")
    # Names like "meta-llama/Llama-2-70b" are no folders.
    outputs = [parsed.output / f"{name.replace('/', '--')}.plan.json" for name in names]
    for output in outputs:
        check_writable(output)
    shares = tuple(
        ModelShare(problem=problem, weight=weight)
        for problem, weight in zip(problems, weights, strict=True)
    )
    interrupt = Interrupt()
    with interrupt.listening():
        mix = plan_models(shares, options=options, cancel=interrupt)
    for output, plan in zip(outputs, mix.plans, strict=True):
        write_plan(output, plan)
        served = value_text(options.objective, served_by(plan))
        print(f"{output}: {served} on {len(plan.placement.layers)} nodes")
    bound = mix.level_bound_tokens_per_s
    most = "no bound is known" if bound is None else f"at most {bound:.1f} is possible"
    least = value_text(options.objective, mix.level_tokens_per_s)
    print(f"least {options.objective} / weight: {least}, {most}")


def _weights(text: str | None, *, count: int) -> list[float]:
    if text is None:
        return [1.0] * count
    try:
        weights = [float(weight) for weight in text.split(",")]
    except ValueError:
        raise InvalidProblem(f"--weights is {text!r}; write numbers with commas between") from None
    if len(weights) != count:
        raise InvalidProblem(f"--weights has {len(weights)} numbers for {count} problems")
    return weights
