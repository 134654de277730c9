"""Imports a problem file: a new cluster with all its rows, and its model if that is new."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from django.utils.translation import gettext as _
from rest_framework.exceptions import ValidationError

from helixweb.access.scope import WHOLE_SITE
from helixweb.inventory.as_code.diff import Action, Step
from helixweb.inventory.as_code.documents import Declaration
from helixweb.inventory.as_code.importing import import_declaration
from helixweb.inventory.as_code.kinds import (
    CLUSTERS,
    LINKS,
    MODELS,
    NODES,
    PROFILES,
    REGION_LINKS,
    SHARED,
    Kind,
    name_of,
)
from helixweb.inventory.models import Cluster, LanguageModel, Origin
from helixweb.inventory.services.errors import Conflicting, NameTaken
from planner import InvalidProblem, Node, Problem
from planner.serialization import profile_to_dict

_MODEL_NUMBERS = ("num_layers", "activation_bytes_per_token", "token_bytes", "bytes_per_layer")


def import_problem(problem: Problem, *, cluster_name: str = "") -> Cluster:
    """Store it as a cluster, called `cluster_name` or as it says itself; all or nothing.

    Raises InvalidProblem, NameTaken, Conflicting.
    """
    name = cluster_name or problem.name
    try:
        import_declaration(
            _declaration(problem, name),
            scope=WHOLE_SITE,
            prune=False,
            dry_run=False,
            may_change_site=True,
            check=partial(_check_new, name),
            in_one_line=True,
        )
    except ValidationError as error:
        refused: Any = error.detail
        place, messages = next(iter(refused.items()))
        raise InvalidProblem(f"{place}: {messages[0]}") from error
    return Cluster.unscoped.get(name=name)


def _declaration(problem: Problem, name: str) -> Declaration:
    declaration = Declaration()
    for kind, rows in _rows(problem, name):
        owner = "" if kind in (MODELS, CLUSTERS) else name
        for row in rows:
            place = f"{kind.label} {name_of(tuple(str(row[key]) for key in kind.key))[:80]!r}"
            declaration.add(kind, row, place=place, cluster=owner)
    return declaration


def _rows(problem: Problem, name: str) -> Iterator[tuple[Kind, Iterable[dict[str, Any]]]]:
    """Rows of a problem file, by kind, as in an inventory file."""
    cluster, imported = problem.cluster, {"origin": Origin.IMPORTED.value}
    model = asdict(problem.model)
    if LanguageModel.objects.filter(name=problem.model.name).exists():
        # Only what every file gives is compared.
        model = {key: model[key] for key in ("name", *_MODEL_NUMBERS)}
    yield MODELS, [model]
    own = {"name": name, "coordinator_region": cluster.coordinator_region, "source": problem.source}
    yield CLUSTERS, [{**own, **asdict(problem.workload)}]
    of_model = {"model": problem.model.name, **imported}
    profiles = problem.compute_profiles.values()
    yield PROFILES, ({**of_model, "name": one.name, **profile_to_dict(one)} for one in profiles)
    yield NODES, map(_node, cluster.nodes)
    yield REGION_LINKS, ({**imported, **asdict(link)} for link in cluster.region_links)
    yield LINKS, ({**imported, **asdict(link)} for link in cluster.links)
    yield SHARED, ({**asdict(one), "members": list(one.members)} for one in cluster.shared)


def _node(node: Node) -> dict[str, Any]:
    values = asdict(node)
    profile_name = values.pop("compute_profile")
    return {**values, "profile_name": profile_name}


def _check_new(name: str, steps: Sequence[Step]) -> None:
    """Raise NameTaken for an existing cluster, Conflicting for a different model of that name."""
    if not any(step.kind is CLUSTERS and step.action is Action.ADD for step in steps):
        raise NameTaken(
            _(
                "A cluster called %(cluster_name)s exists already; give this one another "
                "name or delete that one first."
            )
            % {"cluster_name": repr(name)}
        )
    for step in steps:
        if step.kind is MODELS and step.action is Action.CHANGE:
            different = [
                f"{key} {step.before[key]:g} there, {value:g} here"
                for key, value in step.after.items()
            ]
            raise Conflicting(
                _(
                    "A model called %(name)s is known with other numbers (%(names)s); rename "
                    "the model in the file, or change or delete the known one."
                )
                % {"name": repr(step.name), "names": "; ".join(different)}
            )
