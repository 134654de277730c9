"""Preview before a run: what fits, what the baselines reach, and the bounds of all plans."""

import json
from collections import defaultdict
from functools import lru_cache
from typing import Any

import planner
from helixweb.inventory.models import Cluster, LanguageModel
from helixweb.inventory.services.problems import build_problem
from helixweb.planning.options import DEFAULTS, OPTIONS
from planner.serialization import problem_from_dict, problem_to_dict


def preview_fit(*, cluster: Cluster, model: LanguageModel) -> dict[str, Any]:
    """Layers the cluster can hold against layers needed, and the bound on any plan's flow.

    Baselines are none where the model does not fit. Raises InvalidProblem for an incomplete
    inventory.
    """
    return _fit_of(json.dumps(problem_to_dict(build_problem(cluster, model))))


# Baselines of a thousand nodes take a moment.
@lru_cache(maxsize=16)
def _fit_of(document: str) -> dict[str, Any]:
    problem = problem_from_dict(json.loads(document))
    needed, bound = problem.model.num_layers, planner.upper_bound_tokens_per_s(problem)
    names_of: dict[str, list[str]] = defaultdict(list)
    for node in problem.cluster.nodes:
        names_of[node.compute_profile].append(node.name)
    profiles: list[dict[str, Any]] = []
    for profile, names in sorted(names_of.items()):
        each = planner.max_layers(problem, names[0])
        profiles.append(
            {
                "profile": profile,
                "gpu": problem.compute_profiles[profile].gpu,
                "nodes": len(names),
                "layers_per_node": each,
                "layers": each * len(names),
            }
        )
    limits = [planner.layer_limits(problem, node.name) for node in problem.cluster.nodes]
    holdable = planner.most_held(limits, num_layers=needed)
    return {
        "profiles": profiles,
        "fits": holdable >= needed,
        "layers_holdable": holdable,
        "layers_needed": needed,
        # Layers that nodes cannot hold beside the embedding and the output head.
        "ends_cost_layers": sum(one["layers"] for one in profiles) - holdable,
        "layers_held": min(holdable, needed),
        # Between too few layers and enough: a bar turns from bad to good there.
        "layers_short": needed - 0.5,
        "upper_bound_tokens_per_s": bound,
        "baselines": _baselines(problem, bound) if holdable >= needed else (),
    }


def _baselines(problem: planner.Problem, bound_tokens_per_s: float) -> list[dict[str, Any]]:
    """The max flow of each baseline's placement; None: it finds none."""
    largest, found = planner.LargestFlow(problem, DEFAULTS), []
    for name, place in planner.BASELINES.items():
        placement = place(problem)
        flow = None if placement is None else largest.tokens_per_s(placement)
        share = flow / bound_tokens_per_s if flow is not None and bound_tokens_per_s > 0 else None
        found.append(
            {
                "name": name,
                "title": OPTIONS["baselines"].spec.choices[name],
                "flow_tokens_per_s": flow,
                "share_of_bound": share,
            }
        )
    return found
