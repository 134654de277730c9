"""An import from its file to its outcome: all of it, or nothing and why."""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.utils.translation import gettext as _
from rest_framework.exceptions import PermissionDenied, ValidationError

from helixweb.inventory.as_code.applying import apply
from helixweb.inventory.as_code.checks import check
from helixweb.inventory.as_code.declared import Declaration, Errors
from helixweb.inventory.as_code.diff import Action, Step, steps
from helixweb.inventory.as_code.kinds import ALL, CLUSTERS, MODELS
from helixweb.inventory.as_code.stored import read_site
from helixweb.inventory.models import Cluster, LanguageModel
from helixweb.inventory.services.checkpoint_reading import (
    NEEDED_NUMBERS,
    CheckpointRefused,
    columns_of,
    read_checkpoint,
)
from helixweb.inventory.services.errors import Conflicting

# Steps that an outcome tells one by one; the rest is counted.
MOST_TOLD = 1000
# Checkpoints of one file that are read, as each may need the network.
MOST_READ = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an import does, or would do."""

    steps: Sequence[Step]
    applied: bool

    @property
    def digest(self) -> str:
        """Equal for equal steps."""
        found = hashlib.sha256()
        for step in self.steps:
            found.update(json.dumps(_told(step), sort_keys=True).encode())
        return found.hexdigest()

    def told(self) -> dict[str, Any]:
        """As the REST API answers."""
        counts = Counter((step.kind.section, step.action) for step in self.steps)
        return {
            "applied": self.applied,
            "digest": self.digest,
            "counts": [
                {
                    "kind": kind.section,
                    **{action: counts[kind.section, action] for action in Action},
                }
                for kind in ALL
                if any(counts[kind.section, action] for action in Action)
            ],
            "steps": [_told(step) for step in self.steps[:MOST_TOLD]],
            "left_out": max(0, len(self.steps) - MOST_TOLD),
        }


def import_declaration(
    declaration: Declaration,
    *,
    prune: bool,
    dry_run: bool,
    may_change_site: bool,
    expected: str = "",
) -> Outcome:
    """Raises ValidationError naming each bad place, PermissionDenied, NameTaken, Conflicting.

    `may_change_site`: make clusters, and make and change models. `expected`: the digest of what
    somebody looked at and agreed to; empty: whatever comes of it.
    """
    if may_change_site:
        _read_checkpoints(declaration)
    _refuse(declaration.errors)
    with nullcontext() if dry_run else transaction.atomic():
        names = list(declaration.clusters())
        if not dry_run:
            _lock(names)
        site = read_site(names)
        found = list(steps(declaration, site, prune=prune))
        if not may_change_site:
            _check_site_role(found)
        errors = Errors()
        check(found, site, errors)
        _refuse(errors)
        outcome = Outcome(steps=found, applied=not dry_run)
        if expected and outcome.digest != expected:
            raise Conflicting(
                _(
                    "The site was changed since it was compared with the file, so nothing was "
                    "done; compare them again."
                )
            )
        if not dry_run:
            apply(found)
    return outcome


def _read_checkpoints(declaration: Declaration) -> None:
    """Fills in the numbers of new models that the file gives as checkpoints alone.

    Before the transaction, as agents answer in others. Stops at the first that cannot be read.
    """
    rows = declaration.rows(MODELS)
    known = set(LanguageModel.objects.values_list("name", flat=True))
    lacking = [
        (key, row)
        for key, row in rows.items()
        if key[0] not in known
        and row.values.get("checkpoint")
        and any(name not in row.values for name in NEEDED_NUMBERS)
    ]
    for count, (key, row) in enumerate(lacking):
        if count == MOST_READ:
            told = _("At most %(count)s models of one file are read; give this one's numbers.")
            declaration.errors.add(row.place, told % {"count": MOST_READ})
            return
        try:
            facts = read_checkpoint(row.values["checkpoint"])
        except CheckpointRefused as error:
            declaration.errors.add(row.place, str(error))
            return
        declaration.add_to(MODELS, key, columns_of(facts))


def _lock(names: Sequence[str]) -> None:
    """Of two imports of one cluster the second sees what the first did."""
    rows = Cluster.objects.select_for_update().filter(name__in=names).order_by("pk")
    list(rows.values_list("pk", flat=True))


def _check_site_role(found: Sequence[Step]) -> None:
    for step in found:
        if step.kind is MODELS or (step.kind is CLUSTERS and step.action is Action.ADD):
            raise PermissionDenied(
                _(
                    "%(kind)s %(name)s: models, and clusters that are new, need the role operator "
                    "on the whole site; ask an administrator for it."
                )
                % {"kind": step.kind.label, "name": repr(step.name)}
            )


def _refuse(errors: Errors) -> None:
    if not errors.count:
        return
    told: dict[str, list[str]] = dict(errors.told)
    if errors.left_out:
        more = _("%(count)s more errors, which are like these or follow from them.")
        told["…"] = [more % {"count": f"{errors.left_out:,}"}]
    raise ValidationError(told)


def _told(step: Step) -> dict[str, Any]:
    return {
        "action": step.action,
        "kind": step.kind.section,
        "cluster": step.cluster,
        "name": step.name,
        "before": _plain(step.before),
        "after": _plain(step.after),
        "place": step.place,
    }


def _plain(values: Any) -> dict[str, Any]:
    return {
        key: list(value) if isinstance(value, tuple) else value for key, value in values.items()
    }
