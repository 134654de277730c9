"""The inventory as `planner.domain.Problem`."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import fields
from typing import Any, TypeVar

from django.core.exceptions import ValidationError
from django.db import models
from django.utils.translation import gettext as _

import planner
from helixweb.inventory.cluster_names import ClusterNames
from helixweb.inventory.engines import left_out
from helixweb.inventory.models import (
    Cluster,
    LanguageModel,
    Profile,
    gpus_of,
)
from planner import (
    ComputeProfile,
    InvalidProblem,
    ModelSpec,
    Problem,
    Workload,
)
from planner.serialization import (
    profile_from_dict,
)

RecordT = TypeVar("RecordT")
PROFILE_KEYS = ("gpu", "vram_bytes", "max_layers", "tokens_per_s", "kv_capacity_token_layers")
OPTIONAL_KEYS = ("layer_times", "batch_limits", "price_per_hour", "instance_times", "memory")
_TOLD = 5  # at most so many nodes are named in a message


def check_columns(row: models.Model, refusal: type[Exception] = InvalidProblem) -> None:
    """Lengths and characters that a file or a process may send and a row may not have. Raises the
    refusal."""
    try:
        row.clean_fields(exclude=["cluster", "model"])
    except ValidationError as error:
        field, messages = next(iter(error.message_dict.items()))
        what, value = row._meta.verbose_name, str(getattr(row, field))[:80]
        raise refusal(
            f"{what} {str(row)[:80]!r}: {field} {value!r} is refused: {messages[0]}"
        ) from None


def models_of(cluster: Cluster) -> list[LanguageModel]:
    """Models that the cluster has profiles for: what it can be planned for."""
    return list(LanguageModel.objects.filter(profiles__cluster=cluster).distinct())


def models_by_cluster() -> dict[int, list[LanguageModel]]:
    """The same of every cluster that has any, by its id, in the order of their names."""
    known = {model.pk: model for model in LanguageModel.objects.all()}
    pairs = Profile.unscoped.order_by("model__name").values_list("cluster", "model").distinct()
    found: dict[int, list[LanguageModel]] = {}
    for cluster, model in pairs:
        found.setdefault(cluster, []).append(known[model])
    return found


def build_problem(cluster: Cluster, model: LanguageModel, *, is_for_stages: bool = True) -> Problem:
    """The planner's view of the cluster for one model, with the cluster's workload.

    Nodes whose engines cannot run stages of the model are left out if it `is_for_stages`. Raises
    InvalidProblem naming the node or link that is missing and the remedy.
    """
    unfit = left_out(cluster, model) if is_for_stages else {}
    rows = cluster.profiles.filter(model=model).order_by("pk")
    profiles = {row.name: compute_profile(row) for row in rows}
    nodes = [
        planner.Node(
            name=name,
            region=region,
            compute_profile=profile,
            price_per_hour=price,
            gpus=gpus_of(hardware, declared),
        )
        for name, region, profile, price, hardware, declared in cluster.nodes.order_by(
            "pk"
        ).values_list(
            "name", "region", "profile_name", "price_per_hour", "hardware", "declared_gpus"
        )
    ]
    if unfit and len(unfit) == len(nodes):
        raise InvalidProblem(
            _("no node of cluster %(name)s can run stages of model %(model)s: %(reasons)s")
            % {
                "name": repr(cluster.name),
                "model": repr(model.name),
                "reasons": ". ".join(f"{node}: {why}" for node, why in list(unfit.items())[:_TOLD]),
            }
        )
    if not nodes:
        raise InvalidProblem(
            _("cluster %(name)s has no nodes; join one with the command on its page")
            % {"name": repr(cluster.name)}
        )
    for node in nodes:
        if node.name not in unfit and node.compute_profile not in profiles:
            raise InvalidProblem(_missing_profile(node, model, sorted(profiles)))
    problem = Problem(
        name=cluster.name,
        source=cluster.source,
        model=domain_of(ModelSpec, model),
        workload=domain_of(Workload, cluster),
        compute_profiles=profiles,
        cluster=planner.Cluster(
            name=cluster.name,
            coordinator_region=cluster.coordinator_region,
            nodes=tuple(nodes),
            region_links=tuple(
                domain_of(planner.Link, row) for row in cluster.region_links.order_by("pk")
            ),
            links=tuple(domain_of(planner.Link, row) for row in cluster.links.order_by("pk")),
            shared=tuple(_shared_of(cluster)),
        ).without(unfit),
    )
    _check_reachable(problem.cluster)
    return problem


def domain_of(kind: type[RecordT], row: models.Model, **others: Any) -> RecordT:
    """The planner's record with the row's columns of the same names, and with `others`.

    Raises InvalidProblem naming what of it is wrong.
    """
    names = {field.name for field in fields(kind)} - others.keys()  # type: ignore[arg-type]
    return kind(**{name: getattr(row, name) for name in names}, **others)


def _shared_of(cluster: Cluster) -> Iterable[planner.SharedBandwidth]:
    """Shared bandwidths of the cluster's current nodes, without removed members.

    Regions without nodes are left out, and so is a bandwidth without members.
    """
    known = ClusterNames(cluster).members
    for row in cluster.shared_bandwidths.order_by("pk"):
        members = tuple(name for name in row.members if name in known)
        if members:
            yield domain_of(planner.SharedBandwidth, row, members=members)


def compute_profile(row: Profile) -> ComputeProfile:
    """The planner's profile of a row. Raises InvalidProblem naming the invalid value."""
    section = {key: getattr(row, key) for key in PROFILE_KEYS}
    section |= {key: value for key in OPTIONAL_KEYS if (value := getattr(row, key)) is not None}
    return profile_from_dict(section, name=row.name)


def _missing_profile(node: planner.Node, model: LanguageModel, known: list[str]) -> str:
    choice = (
        _("choose one of %(names)s on its page") % {"names": ", ".join(known)}
        if known
        else _("add a profile first")
    )
    if not node.compute_profile:
        return _("node %(name)s has no compute profile for model %(model)s; %(choice)s") % {
            "name": repr(node.name),
            "model": repr(model.name),
            "choice": choice,
        }
    return _(
        "node %(name)s: compute profile %(profile_name)s is not known for model "
        "%(model)s; %(choice)s, or measure it with `python -m runtime profile`"
    ) % {
        "name": repr(node.name),
        "profile_name": repr(node.compute_profile),
        "model": repr(model.name),
        "choice": choice,
    }


def _check_reachable(cluster: planner.Cluster) -> None:
    """Check that every node has a link in and a link out, by name or by region."""
    members = Counter([cluster.coordinator_region, *(node.region for node in cluster.nodes)])
    arriving, leaving = set(), set()
    for link in cluster.links:
        arriving.add(link.target)
        leaving.add(link.source)
    entered, left = set(), set()
    for link in cluster.region_links:
        # Within a region it joins a node to the others there.
        others = members[link.source] - (link.source == link.target)
        if others > 0 and members[link.target]:
            entered.add(link.target)
            left.add(link.source)
    for node in cluster.nodes:
        for word, is_linked in (
            ("to", node.name in arriving or node.region in entered),
            ("from", node.name in leaving or node.region in left),
        ):
            if not is_linked:
                raise InvalidProblem(
                    _(
                        "no link leads %(word)s node %(name)s (region %(region)s): machines "
                        "measure their links within a minute of joining; for one that cannot, add "
                        "links, or one for its pair of regions, on the Network page"
                    )
                    % {"word": word, "name": repr(node.name), "region": repr(node.region)}
                )
