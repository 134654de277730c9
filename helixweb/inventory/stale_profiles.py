"""Measured profiles that no longer describe their nodes, as conditions have changed."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from helixweb.charts.chart import bytes_text
from helixweb.inventory.engines import choice_of
from helixweb.inventory.models import LanguageModel, Node, Origin, Profile, ProfileVersion

_SAME_BYTES = 0.02  # relative: a checkpoint's layers differ a little among themselves


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleProfile:
    """A profile that a node uses, and why its numbers may be wrong there."""

    node: Node
    profile: Profile
    reasons: tuple[str, ...]


def stale_profiles(
    nodes: Iterable[Node], *, model: LanguageModel | None = None
) -> dict[int, tuple[StaleProfile, ...]]:
    """Stale profiles (with at least one reason) by node id; of one model or of all."""
    wanted = [node for node in nodes if node.profile_name and node.hardware]
    rows = Profile.unscoped.filter(
        cluster__in={node.cluster_id for node in wanted},
        name__in={node.profile_name for node in wanted},
        origin__in=(Origin.MEASURED, Origin.REFINED),
    )
    if model is not None:
        rows = rows.filter(model=model)
    rows = rows.select_related("model").defer(
        "layer_times", "batch_limits", "tokens_per_s", "kv_capacity_token_layers"
    )
    by_name: dict[tuple[int, str], list[Profile]] = {}
    dtypes = _newest_dtypes(rows)
    for row in rows:
        by_name.setdefault((row.cluster_id, row.name), []).append(row)
    found = {}
    for node in wanted:
        stale = tuple(
            StaleProfile(node=node, profile=profile, reasons=reasons)
            for profile in by_name.get((node.cluster_id, node.profile_name), ())
            if (reasons := stale_reasons(profile, node, newest_dtype=_of(profile, dtypes)))
        )
        if stale:
            found[node.pk] = stale
    return found


def stale_reasons(profile: Profile, node: Node, *, newest_dtype: str) -> tuple[str, ...]:
    """Differences between the conditions of a measurement and those of the node now; empty for a
    profile that was not measured, and if no difference is known.

    `newest_dtype` is the dtype of the weights in the newest measurement of the model in the
    cluster; "" if unknown.
    """
    if profile.origin not in (Origin.MEASURED, Origin.REFINED) or not node.hardware:
        return ()
    then, model = profile.measured_under or {}, profile.model
    budget_bytes = node.hardware.get("memory_budget_bytes")
    reasons = []
    if budget_bytes and budget_bytes != profile.vram_bytes:
        reasons.append(
            _("measured with a memory budget of %(then)s; the node now offers %(now)s")
            % {"then": bytes_text(profile.vram_bytes), "now": bytes_text(budget_bytes)}
        )
    checkpoint = then.get("checkpoint", "")
    if checkpoint and model.checkpoint and checkpoint != model.checkpoint:
        reasons.append(
            _("measured with checkpoint %(then)s; the model now names %(now)s")
            % {"then": checkpoint, "now": model.checkpoint}
        )
    layer_bytes = then.get("bytes_per_layer")
    if layer_bytes and abs(layer_bytes / model.bytes_per_layer - 1) > _SAME_BYTES:
        reasons.append(
            _("measured with %(then)s per layer (%(dtype)s); the model now has %(now)s")
            % {
                "then": bytes_text(layer_bytes),
                "dtype": then.get("dtype") or _("unknown type"),
                "now": bytes_text(model.bytes_per_layer),
            }
        )
    elif newest_dtype and then.get("dtype", newest_dtype) != newest_dtype:
        reasons.append(
            _("measured with weights in %(then)s; the newest measurement found %(now)s")
            % {"then": then["dtype"], "now": newest_dtype}
        )
    engine = _engine(node, model)
    if engine and then.get("engine", engine) != engine:
        reasons.append(
            _("measured with the engine %(then)s; a stage would now run on %(now)s")
            % {"then": then["engine"], "now": engine}
        )
    return tuple(reasons)


def _newest_dtypes(profiles: Iterable[Profile]) -> dict[tuple[int, int], str]:
    """Type of the weights in the newest measurement, by cluster and model."""
    versions = ProfileVersion.unscoped.filter(
        profile__cluster__in={profile.cluster_id for profile in profiles},
        profile__model__in={profile.model_id for profile in profiles},
        origin=Origin.MEASURED,
        evidence__dtype__gt="",
    )
    recorded = versions.order_by("recorded_at", "pk").values_list(
        "profile__cluster", "profile__model", "evidence__dtype"
    )
    return {(cluster, model): dtype for cluster, model, dtype in recorded}


def _of(profile: Profile, dtypes: dict[tuple[int, int], str]) -> str:
    return dtypes.get((profile.cluster_id, profile.model_id), "")


def _elsewhere_text(profile_name: str, source: str) -> str:
    return _(
        "Profile %(profile_name)s was measured on node %(source)s, whose hardware differs. "
        "Measure this node instead, or confirm that the figures hold for it."
    ) % {"profile_name": profile_name, "source": source}


def measured_elsewhere(nodes: Iterable[Node], profile_name: str) -> tuple[Node, str] | None:
    """The first node whose hardware differs from the node that was measured, and the reason for a
    user to confirm; None if the profile may be assigned without confirmation."""
    rows = Profile.unscoped.filter(
        name=profile_name, origin__in=(Origin.MEASURED, Origin.REFINED)
    ).select_related("model")
    measured = []
    dtypes = _newest_dtypes(rows)
    for row in rows:
        name = (row.measured_under or {}).get("node", "")
        source = Node.unscoped.filter(cluster=row.cluster_id, name=name).first() if name else None
        measured.append((row, name, source))
    for node in nodes:
        for row, name, source in measured:
            if row.cluster_id != node.cluster_id or name in ("", node.name):
                continue
            is_stale = stale_reasons(row, node, newest_dtype=_of(row, dtypes))
            if is_stale or _compute_differently(node, source):
                return node, _elsewhere_text(profile_name, str(name))
    return None


def measured_alike(node: Node, model: LanguageModel) -> ProfileVersion | None:
    """The newest measurement for the model of another node of the cluster with the same GPUs, or
    cores, speed and memory budget, under conditions that hold for it still; None: there is none."""
    if not node.hardware:
        return None
    others = Node.unscoped.filter(cluster=node.cluster_id, hardware__isnull=False)
    alike = [
        other
        for other in others.exclude(pk=node.pk).exclude(profile_name="")
        if not _compute_differently(node, other)
        and _budget(other) == _budget(node)
        and _engine(other, model) == _engine(node, model)
    ]
    stale = stale_profiles(alike, model=model)
    versions = ProfileVersion.unscoped.filter(
        profile__cluster=node.cluster_id,
        profile__model=model,
        profile__origin=Origin.MEASURED,
        origin=Origin.MEASURED,
        evidence__checkpoint=model.checkpoint,
    ).exclude(evidence__has_key="like")
    by_node = {other.name: other for other in alike if other.pk not in stale}
    for version in versions.filter(node__in=by_node).order_by("-recorded_at", "-pk"):
        is_in_use = version.profile.name == by_node[version.node].profile_name
        if is_in_use and (version.evidence or {}).get("points"):
            return version
    return None


def _engine(node: Node, model: LanguageModel) -> str:
    """The engine of a stage of the model there; "" if unknown, or if none could run it."""
    choice = choice_of(node.hardware, model)
    return "" if choice is None or choice.engine is None else choice.engine.value


def _budget(node: Node) -> Any:
    return (node.hardware or {}).get("memory_budget_bytes")


def _compute_differently(node: Node, other: Node | None) -> bool:
    """Both machines are known, and differ in what decides how long a step takes."""
    if other is None or not other.hardware or not node.hardware:
        return False
    return _what_computes(other.hardware) != _what_computes(node.hardware)


def _what_computes(hardware: dict[str, Any]) -> tuple[Any, ...]:
    """The GPUs by name, or the number of CPU cores; and how much the machine was slowed."""
    gpus = sorted(gpu["name"] for gpu in hardware.get("gpus", ()))
    return gpus or hardware.get("cpu_count"), hardware.get("relative_speed", 1.0)
