"""Reads what a command is given and writes what it found."""

import json
import os
from pathlib import Path

from planner.domain.errors import InvalidProblem
from planner.domain.plan import Plan
from planner.domain.problem import Problem
from planner.serialization import plan_from_text, plan_to_dict, problem_from_text


def read_problem(path: Path) -> Problem:
    return problem_from_text(read_text(path), name_hint=str(path))


def read_plan(path: Path) -> Plan:
    return plan_from_text(read_text(path), name_hint=str(path))


def read_plan_of(problem: Problem, path: Path) -> Plan:
    """A plan of the problem's model, perhaps of another cluster. Raises InvalidProblem."""
    plan = read_plan(path)
    model = problem.model
    if (plan.model_name, plan.num_layers) != (model.name, model.num_layers):
        raise InvalidProblem(
            f"{path} is a plan of model {plan.model_name!r} with {plan.num_layers} layers, but the "
            f"problem's model is {model.name!r} with {model.num_layers}; name a plan of that model"
        )
    return plan


def read_text(path: Path) -> str:
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory; name a file in it")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidProblem(
            f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8 text"
        ) from None


def check_writable(output: Path) -> None:
    """Check that a file can be written, before the search."""
    if output.is_dir():
        raise IsADirectoryError(f"{output} is a directory; name a file")
    if output.exists() and not output.is_file():
        raise OSError(f"{output} is not a regular file; name a file")
    if not output.parent.is_dir():
        raise FileNotFoundError(f"{output.parent} is not a directory; create it first")
    if not os.access(output.parent, os.W_OK):
        raise PermissionError(f"{output.parent} is not writable; name a file elsewhere")


def write_plan(output: Path, plan: Plan) -> None:
    write_document(output, plan_to_dict(plan))


def write_document(output: Path, document: dict[str, object]) -> None:
    """Whole or not at all."""
    text = json.dumps(document, indent=1, allow_nan=False) + "\n"
    temporary = output.with_name(f".{output.name}.{os.getpid()}.partial")
    try:
        with temporary.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(output)
    finally:
        temporary.unlink(missing_ok=True)
