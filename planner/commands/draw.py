"""`planner draw`: a picture of a plan: the layers that nodes hold, and what passes between them."""

import argparse
from pathlib import Path

from planner.commands.drawing import FAINT, INK, RED, Drawing, colours_by_name
from planner.commands.files import check_writable, read_plan_of, read_problem
from planner.domain.cluster import SINK, SOURCE
from planner.domain.errors import PlannerError
from planner.domain.flow import Flow
from planner.domain.placement import Placement
from planner.domain.problem import Problem

_LEFT, _RIGHT, _TOP, _BOTTOM, _ROW = 180, 190, 44, 40, 30
_LAYERS_WIDTH, _MOST_CELL = 880, 44
_LABEL_WIDTH = 34  # of a layer's number
_MOST_LINE_WIDTH = 5.0


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("problem", type=Path, metavar="PROBLEM", help="JSON or YAML problem file")
    command.add_argument("plan", type=Path, metavar="PLAN.json")
    command.add_argument("--output", type=Path, required=True, metavar="FILE.svg")


def run(parsed: argparse.Namespace) -> None:
    if parsed.output.suffix.lower() != ".svg":
        raise PlannerError(f"{parsed.output}: pictures are SVG; name a file that ends in .svg")
    check_writable(parsed.output)
    problem = read_problem(parsed.problem)
    plan = read_plan_of(problem, parsed.plan)
    parsed.output.write_text(picture(problem, plan.placement, plan.flow).svg(), encoding="utf-8")


def picture(problem: Problem, placement: Placement, flow: Flow) -> Drawing:
    """Draw nodes as rows and layers as columns; arrows lead to the nodes of the next layers."""
    num_layers, held_by = problem.model.num_layers, placement.layers
    cell = min(_MOST_CELL, _LAYERS_WIDTH / num_layers)
    right = _LEFT + num_layers * cell
    names = sorted(held_by, key=lambda name: (held_by[name].first, held_by[name].end, name))
    middle_of = {name: _TOP + (row + 0.5) * _ROW for row, name in enumerate(names)}
    gpu_of = {name: problem.profile_of(name).gpu for name in names}
    colours = colours_by_name(gpu_of.values())
    value = flow.value_tokens_per_s
    drawing = Drawing(
        round(right + _RIGHT),
        _TOP + len(names) * _ROW + _BOTTOM,
        f"{len(names)} nodes as rows, {num_layers} layers as columns: {value:.1f} tokens/s pass",
    )
    drawing.words(_LEFT - 12, _TOP - 10, "layer", at="end", colour=FAINT)
    for layer in range(0, num_layers, -int(-_LABEL_WIDTH // cell)):
        drawing.words(_LEFT + (layer + 0.5) * cell, _TOP - 10, str(layer), colour=FAINT)
    for name, middle in middle_of.items():
        held, colour = held_by[name], colours[gpu_of[name]]
        limits = name in flow.min_cut.nodes
        drawing.words(_LEFT - 12, middle + 5, f"{name} · {gpu_of[name]}", at="end", bold=True)
        x, width = _LEFT + held.first * cell + 1, len(held) * cell - 2
        drawing.box(
            x, middle - 11, width, 22, fill=colour, stroke=RED if limits else colour, opacity=0.7
        )
        if name in flow.nodes:
            node = flow.nodes[name]
            carried = f"{node.flow_tokens_per_s:.1f} of {node.capacity_tokens_per_s:.1f}"
            ink = RED if limits else INK
            drawing.words(right + 12, middle + 5, carried, at="start", colour=ink)
    for edge in flow.edges:
        if edge.flow_tokens_per_s <= 0 or edge.source == SOURCE or edge.target == SINK:
            continue
        end = _LEFT + held_by[edge.source].end * cell
        drawing.line(
            end - cell / 4,
            middle_of[edge.source],
            end + cell / 4,
            middle_of[edge.target],
            width=1 + _MOST_LINE_WIDTH * edge.flow_tokens_per_s / value,
            arrow=True,
        )
    drawing.words(
        20,
        drawing.height - 12,
        f"right: tokens/s through each node of what it could · max flow {value:.1f} · "
        "red: the min cut, whose nodes are full",
        at="start",
        size=12,
        colour=FAINT,
    )
    return drawing
