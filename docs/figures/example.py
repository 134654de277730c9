"""The cluster of the drawings, `docs/examples/cluster.yaml`, and one placement on it."""

from pathlib import Path

from planner.balanced_flow import balanced_flow
from planner.commands.drawing import colours_by_name
from planner.domain.flow import Flow
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Problem
from planner.serialization import problem_from_text

FILE = Path(__file__).resolve().parents[1] / "examples" / "cluster.yaml"
# Two ways in, an overlap in the middle, two ways out.
RANGES = {"a": (0, 6), "b": (0, 4), "c": (4, 8), "d": (6, 12), "e": (8, 12)}
PLACEMENT = Placement(
    layers={node: LayerRange(first=first, end=end) for node, (first, end) in RANGES.items()}
)
LAYERS = 12
KINDS = colours_by_name(("A100", "L4", "T4", "V100"))


def problem() -> Problem:
    return problem_from_text(FILE.read_text(), name_hint=FILE.name)


def gpus() -> dict[str, str]:
    """Node to the GPU it has."""
    return {node.name: node.compute_profile for node in problem().cluster.nodes}


def flow(*, partial_inference: bool) -> Flow:
    return balanced_flow(problem(), PLACEMENT, partial_inference=partial_inference)
