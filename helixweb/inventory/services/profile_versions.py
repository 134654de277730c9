"""Versions of profiles, and profiles as files."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from helixweb.inventory.models import Cluster, LanguageModel, Node, Origin, Profile, ProfileVersion
from helixweb.inventory.services import records
from helixweb.inventory.services.errors import Conflicting
from helixweb.inventory.services.problems import (
    OPTIONAL_KEYS,
    PROFILE_KEYS,
    check_columns,
    compute_profile,
    domain_of,
)
from planner import ComputeProfile, InvalidProblem, ModelSpec, Workload
from planner.document import Section
from planner.domain.limits import Name
from planner.roofline import data_sheet, layer_shape, roofline_profile
from planner.serialization import profile_from_dict, profile_to_dict
from planner.serialization.records import value_from

PROFILE_FORMAT = "helixweb.profile/1"
_KEYS = ("format", "name", "model", "origin", "recorded_at", "node", "profile", "evidence")


def profile_of_node(node: Node, model: LanguageModel) -> tuple[Profile | None, str]:
    """The row that a measurement of the node belongs in, None if there is none yet, and its name.

    A profile that other nodes go by, too, stays theirs: the node then gets one of its own.
    """
    shared = (
        Node.unscoped.filter(cluster=node.cluster_id, profile_name=node.profile_name)
        .exclude(pk=node.pk)
        .exists()
    )
    name = node.profile_name if node.profile_name and not shared else node.name
    return Profile.unscoped.filter(cluster=node.cluster_id, model=model, name=name).first(), name


def take_measured(
    node: Node,
    model: LanguageModel,
    found: ComputeProfile,
    *,
    evidence: Mapping[str, Any],
    now: datetime,
) -> ProfileVersion:
    """Store a node's measurement and make plans use it. What it does not cover (the price, the
    times of other engines) is unchanged. Raises InvalidProblem."""
    with transaction.atomic():
        row, name = profile_of_node(node, model)
        if row is None:
            row = _created(node.cluster, model, name, found, Origin.MEASURED)
        known = compute_profile(row)
        version = keep_version(
            row,
            replace(
                found, price_per_hour=known.price_per_hour, instance_times=known.instance_times
            ),
            origin=Origin.MEASURED,
            node=node.name,
            evidence=evidence,
            now=now,
        )
        use_version(version)
        if node.profile_name != name:
            _copy_for_other_models(node, model, name=name)
            records.update(node, profile_name=name)
    return version


def _created(
    cluster: Cluster, model: LanguageModel, name: str, found: ComputeProfile, origin: Origin
) -> Profile:
    """Raises InvalidProblem, NameTaken."""
    fields = {"cluster": cluster, "model": model, "name": name, "origin": origin, **_fields(found)}
    check_columns(Profile(**fields))
    return records.create(Profile, **fields)


def keep_version(
    row: Profile,
    found: ComputeProfile,
    *,
    origin: Origin,
    node: str = "",
    evidence: Mapping[str, Any] | None,
    now: datetime,
) -> ProfileVersion:
    """Store it beside the others of the profile; what plans use stays as it is.

    The first that is kept keeps what the profile was before, too.
    """
    with transaction.atomic():
        newest = row.versions.order_by("-number").first()
        if newest is None and row.recorded_at is not None and row.recorded_at < now:
            newest = row.versions.create(
                number=1,
                origin=row.origin,
                document=profile_to_dict(compute_profile(row)),
                recorded_at=row.recorded_at,
            )
        return row.versions.create(
            number=1 if newest is None else newest.number + 1,
            origin=origin,
            node=node,
            document=profile_to_dict(found),
            evidence=evidence,
            recorded_at=now,
        )


def keep_refined(
    row: Profile, found: ComputeProfile, *, evidence: Mapping[str, Any], now: datetime
) -> ProfileVersion:
    """Keep what traffic showed beside the others; the newest such, if no plan uses it, is
    replaced, so that they do not pile up."""
    with transaction.atomic():
        newest = row.versions.order_by("-number").first()
        is_free = newest is not None and newest.origin == Origin.REFINED
        if (
            newest is None
            or not is_free
            or newest.document == profile_to_dict(compute_profile(row))
        ):
            return keep_version(row, found, origin=Origin.REFINED, evidence=evidence, now=now)
        newest.document, newest.evidence = profile_to_dict(found), dict(evidence)
        newest.recorded_at = now
        newest.save()
        return newest


def use_version(version: ProfileVersion) -> Profile:
    """Have plans use it from now on; those that were computed stay. Raises InvalidProblem."""
    row = version.profile
    found = profile_from_dict(version.document, name=row.name)
    return records.update(
        row, origin=version.origin, measured_under=_conditions(version), **_fields(found)
    )


def estimate_profile(cluster: Cluster, model: LanguageModel, *, gpu: str, name: str) -> Profile:
    """Create a profile from the data sheet of a GPU without a measurement, marked as estimated.

    Raises UnknownGpu, UnknownShape, InvalidProblem, NameTaken.
    """
    found = roofline_profile(
        name,
        data_sheet(gpu),
        layer_shape(domain_of(ModelSpec, model)),
        gpu=gpu,
        num_layers=model.num_layers,
        workload=domain_of(Workload, cluster),
        longest_tokens=model.max_context_tokens,
    )
    return _created(cluster, model, name, found, Origin.ESTIMATED)


def export_profile(row: Profile) -> dict[str, Any]:
    """A `helixweb.profile/1` document."""
    newest = row.versions.filter(origin=row.origin).first()
    document = profile_to_dict(compute_profile(row))
    version = newest if newest is not None and newest.document == document else None
    return {
        "format": PROFILE_FORMAT,
        "name": row.name,
        "model": row.model.name,
        "origin": row.origin,
        "recorded_at": None if row.recorded_at is None else row.recorded_at.isoformat(),
        "node": version.node if version is not None else "",
        "profile": document,
        "evidence": version.evidence if version is not None else None,
    }


def import_profile(cluster: Cluster, document: object, *, name: str = "") -> ProfileVersion:
    """Store a `helixweb.profile/1` document as a profile, or as a version of the one of that name.

    Plans use it. `name` instead of the document's own. Raises InvalidProblem naming the field.
    """
    top = Section.at(document, "the profile")
    top.allow_only(*_KEYS)
    if top.text("format") != PROFILE_FORMAT:
        raise InvalidProblem(
            _("format is %(found)s; this reads %(wanted)s, as a profile's page exports it")
            % {"found": repr(top.text("format")), "wanted": repr(PROFILE_FORMAT)}
        )
    name = name or value_from(top.value("name"), top.path_of("name"), Name)
    model = LanguageModel.objects.filter(name=top.text("model")).first()
    if model is None:
        raise InvalidProblem(
            _("model is %(model)s, which is not known here; add it first, or one of: %(names)s")
            % {
                "model": repr(top.text("model")),
                "names": ", ".join(LanguageModel.objects.values_list("name", flat=True))
                or _("none yet"),
            }
        )
    found = profile_from_dict(top.value("profile"), name=name)
    if found.max_layers > model.num_layers:
        raise InvalidProblem(
            _("max_layers is %(found)s, but %(model)s has %(layers)s; was it another model?")
            % {"found": found.max_layers, "model": model.name, "layers": model.num_layers}
        )
    evidence = top.value("evidence") if top.has("evidence") else None
    if evidence is not None and not isinstance(evidence, dict):
        raise InvalidProblem(_("evidence is no object; leave it out, or export the profile again"))
    with transaction.atomic():
        now = timezone.now()
        row = Profile.unscoped.filter(cluster=cluster, model=model, name=name).first()
        if row is None:
            row = _created(cluster, model, name, found, Origin.IMPORTED)
        version = keep_version(row, found, origin=Origin.IMPORTED, evidence=evidence, now=now)
        use_version(version)
    return version


def delete_version(version: ProfileVersion) -> None:
    """Forget one that plans do not use. Raises Conflicting."""
    row = version.profile
    if version.document == profile_to_dict(compute_profile(row)):
        raise Conflicting(
            _("Plans use version %(number)s of %(name)s; use another one first.")
            % {"number": version.number, "name": row.name}
        )
    version.delete()


def _conditions(version: ProfileVersion) -> dict[str, Any] | None:
    """Conditions of its measurement; a version refined by traffic has those of its origin."""
    if version.origin == Origin.REFINED:
        return version.profile.measured_under
    if version.origin != Origin.MEASURED:
        return None
    evidence = version.evidence or {}
    known = ("checkpoint", "dtype", "bytes_per_layer", "engine", "kv_minimum")
    return {"node": version.node} | {key: evidence[key] for key in known if evidence.get(key)}


def _fields(found: ComputeProfile) -> dict[str, Any]:
    """Columns of a row; what it does not say is null."""
    section = profile_to_dict(found)
    return {key: section.get(key) for key in (*PROFILE_KEYS, *OPTIONAL_KEYS)}


def _copy_for_other_models(node: Node, model: LanguageModel, *, name: str) -> None:
    """Copy the node's previous profiles for other models to its new profile's name."""
    if not node.profile_name:
        return
    others = Profile.unscoped.filter(cluster=node.cluster_id, name=node.profile_name).exclude(
        model=model
    )
    taken = set(
        Profile.unscoped.filter(cluster=node.cluster_id, name=name).values_list("model", flat=True)
    )
    for row in others:
        if row.model_id not in taken:
            row.pk, row.name = None, name
            row.save()
