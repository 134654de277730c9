"""`make demo CHECK=1`: is the answer what the whole model would give, over shared pipelines?"""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from helixweb.demo.processes import DemoFailed, Processes
from planner.serialization import plan_from_dict

_ANSWERS_WITHIN_S = 600.0  # two large libraries are read first


def reference_ids(
    processes: Processes, checkpoint: Path, questions: Sequence[str], *, max_tokens: int
) -> list[list[int]]:
    """Token ids that `transformers` generates greedily on the whole checkpoint, by question.
    Raises DemoFailed."""
    command = [
        sys.executable, "-m", "runtime", "reference",
        "--checkpoint", str(checkpoint), "--max-tokens", str(max_tokens),
        *(word for question in questions for word in ("--chat", question)),
    ]  # fmt: skip
    answers = json.loads(processes.run("reference", command, timeout_s=_ANSWERS_WITHIN_S))
    return [answer["token_ids"] for answer in answers]


def same_tokens(question: str, answer: dict[str, Any], reference: list[int]) -> None:
    """Raise DemoFailed unless the answer's token ids equal the reference's."""
    ids = answer["choices"][0]["token_ids"]
    if ids != reference:
        at = next(
            (i for i, (a, b) in enumerate(zip(ids, reference, strict=False)) if a != b),
            min(len(ids), len(reference)),
        )
        raise DemoFailed(
            f"token {at} of the answer to {question!r} differs from transformers: "
            f"{ids[at : at + 4]} against {reference[at : at + 4]} "
            f"({len(ids)} and {len(reference)} tokens)"
        )


def uneven_and_shared(document: dict[str, Any], *, nodes: int) -> str:
    """The plan in words; raises DemoFailed if it is an even split over all `nodes` or no
    pipelines share a node."""
    plan = plan_from_dict(document)
    sizes = {len(held) for held in plan.placement.layers.values()}
    used = set(plan.placement.layers)
    paths = _paths(plan.routing_weights, "source")
    visits = Counter(node for path in paths for node in path)
    shared = sorted(node for node, count in visits.items() if count >= 2)
    if len(sizes) == 1 and len(used) == nodes:
        raise DemoFailed("the plan is an even split; the demo's nodes are meant to be unequal")
    if len(paths) < 2 or not shared:
        raise DemoFailed(f"no two pipelines share a node: {paths}")
    return f"{len(paths)} pipelines; shared by several: {', '.join(shared)}"


def _paths(weights: Any, vertex: str) -> list[tuple[str, ...]]:
    if vertex == "sink":
        return [()]
    return [
        ((vertex, *rest) if vertex != "source" else rest)
        for successor in weights.get(vertex, {})
        for rest in _paths(weights, successor)
    ]
