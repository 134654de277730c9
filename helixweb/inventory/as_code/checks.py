"""What no row alone can tell: looks at the clusters as they would be after an import."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.utils.translation import gettext as _

from helixweb.inventory.as_code.declared import Errors
from helixweb.inventory.as_code.diff import Action, Step
from helixweb.inventory.as_code.kinds import (
    CLUSTERS,
    LINKS,
    MODELS,
    NODES,
    PROFILES,
    SHARED,
)
from helixweb.inventory.as_code.stored import Site
from helixweb.inventory.models import SharedBandwidth
from helixweb.inventory.services.problems import OPTIONAL_KEYS, PROFILE_KEYS
from helixweb.inventory.services.shared_bandwidths import domain_shared
from planner.domain.cluster import COORDINATOR
from planner.domain.errors import InvalidProblem
from planner.serialization import profile_from_dict

_LONGEST_LIST = 300


def check(found: Iterable[Step], site: Site, errors: Errors) -> None:
    """Adds to `errors` what the steps would make that cannot be."""
    steps = [step for step in found if step.action is not Action.REMOVE]
    going = {(step.kind.section, step.cluster, step.key) for step in found} - {
        (step.kind.section, step.cluster, step.key) for step in steps
    }
    after = _After(steps, going, site)
    for step in steps:
        try:
            _check_new(step)
            _check_step(step, after)
        except InvalidProblem as error:
            errors.add(step.place, str(error))


class _After:
    """Names that there will be, per cluster."""

    def __init__(
        self, steps: Iterable[Step], going: set[tuple[str, str, tuple[str, ...]]], site: Site
    ) -> None:
        self.models = {key[0] for key in site.models}
        self.clusters = {key[0] for key in site.clusters}
        self._site, self._going = site, going
        self._regions: dict[str, set[str]] = {}
        self._nodes: dict[str, set[str]] = {}
        self._profiles: dict[str, set[str]] = {}
        self._changed: dict[str, list[Step]] = {}
        for step in steps:
            if step.kind is MODELS:
                self.models.add(step.key[0])
            elif step.kind is CLUSTERS:
                self.clusters.add(step.key[0])
            self._changed.setdefault(step.cluster or step.key[0], []).append(step)

    def values(self, step: Step) -> dict[str, Any]:
        """The whole row as it will be."""
        known = self._site.of(step.kind, step.cluster).get(step.key)
        return {**(known.values if known else {}), **step.after}

    def nodes(self, cluster: str) -> set[str]:
        if cluster not in self._nodes:
            self._nodes[cluster] = {row["name"] for row in self._rows(NODES, cluster)}
        return self._nodes[cluster]

    def profiles(self, cluster: str) -> set[str]:
        if cluster not in self._profiles:
            self._profiles[cluster] = {row["name"] for row in self._rows(PROFILES, cluster)}
        return self._profiles[cluster]

    def members(self, cluster: str) -> set[str]:
        """What may share bandwidth: nodes, regions, the coordinator."""
        if cluster not in self._regions:
            own = self._site.clusters.get((cluster,))
            whole = dict(own.values) if own else {}
            for step in self._changed.get(cluster, ()):
                if step.kind is CLUSTERS:
                    whole |= step.after
            regions = {str(row.get("region", "local")) for row in self._rows(NODES, cluster)}
            self._regions[cluster] = regions | {str(whole.get("coordinator_region", "local"))}
        return self._regions[cluster] | self.nodes(cluster) | {COORDINATOR}

    def _rows(self, kind: Any, cluster: str) -> list[Mapping[str, Any]]:
        rows = {
            key: row.values
            for key, row in self._site.of(kind, cluster).items()
            if (kind.section, cluster, key) not in self._going
        }
        for step in self._changed.get(cluster, ()):
            if step.kind is kind:
                rows[step.key] = {**rows.get(step.key, {}), **step.after}
        return list(rows.values())


def _check_new(step: Step) -> None:
    if step.action is not Action.ADD:
        return
    missing = [name for name in step.kind.required if name not in step.after]
    if missing:
        raise InvalidProblem(
            _("%(kind)s %(name)s is new and lacks %(keys)s; add it.")
            % {"kind": step.kind.label, "name": repr(step.name), "keys": ", ".join(missing)}
        )


def _check_step(step: Step, after: _After) -> None:
    if step.cluster and step.cluster not in after.clusters:
        raise InvalidProblem(
            _("there is no cluster %(name)s; declare it in the file or make it first")
            % {"name": repr(step.cluster)}
        )
    if step.kind is NODES:
        _check_profile_name(step, after)
    elif step.kind is LINKS:
        _check_ends(step, after)
    elif step.kind is SHARED:
        _check_members(step, after)
    elif step.kind is PROFILES:
        _check_profile(step, after)
    else:
        step.kind.check(after.values(step))


def _check_profile_name(step: Step, after: _After) -> None:
    name = step.after.get("profile_name", "")
    known = after.profiles(step.cluster)
    if name and name not in known:
        raise InvalidProblem(
            _(
                "node %(name)s: the cluster has no compute profile %(profile_name)s; "
                "leave it empty or choose one of: %(names)s"
            )
            % {
                "name": repr(step.name),
                "profile_name": repr(name),
                "names": ", ".join(sorted(known))[:_LONGEST_LIST] or _("none yet"),
            }
        )


def _check_ends(step: Step, after: _After) -> None:
    source, target = step.key
    known = after.nodes(step.cluster)
    for end in (source, target):
        if end != COORDINATOR and end not in known:
            raise InvalidProblem(
                _(
                    "link %(link)s: %(end)s is not a node of cluster %(name)s; name one of "
                    "its nodes or %(coordinator)s"
                )
                % {
                    "link": step.name,
                    "end": repr(end),
                    "name": repr(step.cluster),
                    "coordinator": repr(COORDINATOR),
                }
            )
    if source == target:
        raise InvalidProblem(
            _("link %(link)s joins a node to itself; choose two different ends")
            % {"link": step.name}
        )


def _check_members(step: Step, after: _After) -> None:
    values = after.values(step)
    domain_shared(SharedBandwidth(**values))
    known = after.members(step.cluster)
    for member in values["members"]:
        if member not in known:
            raise InvalidProblem(
                _(
                    "shared bandwidth %(name)s: member %(member)s is neither a node nor a "
                    "region of cluster %(cluster)s; name one of these or %(coordinator)s"
                )
                % {
                    "name": repr(step.name),
                    "member": repr(member),
                    "cluster": repr(step.cluster),
                    "coordinator": repr(COORDINATOR),
                }
            )


def _check_profile(step: Step, after: _After) -> None:
    values = after.values(step)
    if values["model"] not in after.models:
        raise InvalidProblem(
            _("profile %(name)s: there is no model %(model)s; declare it under models")
            % {"name": repr(values["name"]), "model": repr(values["model"])}
        )
    section = {key: values.get(key, "") for key in PROFILE_KEYS}
    section |= {key: value for key in OPTIONAL_KEYS if (value := values.get(key)) is not None}
    profile_from_dict(section, name=str(values["name"]))
