"""An import from its file to its outcome: all of it, or nothing and why."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.db import transaction
from rest_framework.exceptions import PermissionDenied, ValidationError

from helixweb.common.actor import together
from helixweb.inventory.as_code.applying import Written, announce, apply
from helixweb.inventory.as_code.diff import Action, Site, Step, read_site, steps
from helixweb.inventory.as_code.documents import Declaration, Errors
from helixweb.inventory.as_code.kinds import ALL, CLUSTERS, MODELS
from helixweb.inventory.cluster_names import ClusterNames
from helixweb.inventory.models import Cluster, LanguageModel
from helixweb.inventory.services.checkpoint_reading import (
    NEEDED_NUMBERS,
    CheckpointRefused,
    model_columns,
    read_checkpoint,
)
from helixweb.inventory.services.checks import check_row
from helixweb.inventory.services.errors import Conflicting
from planner import InvalidProblem

# Steps that an outcome lists one by one; the rest is counted.
MOST_TOLD = 1000
# At most so many checkpoints of one file are read, as each may need the network.
MOST_READ = 16


@dataclass(frozen=True)
class ImportOutcome:
    """What an import does, or would do; as the REST API answers."""

    all_steps: Sequence[Step]
    applied: bool

    @cached_property
    def digest(self) -> str:
        """Equal for equal steps."""
        found = hashlib.sha256()
        for step in self.all_steps:
            digests = [
                step.action, step.kind.section, step.cluster, step.name, step.before, step.after,
                step.place,
            ]  # fmt: skip
            found.update(json.dumps(digests, sort_keys=True).encode())
        return found.hexdigest()

    @property
    def counts(self) -> list[dict[str, Any]]:
        """Number of steps by action, of each kind that has any."""
        counts = Counter((step.kind.section, step.action) for step in self.all_steps)
        summaries = [
            {"kind": kind.section, **{action: counts[kind.section, action] for action in Action}}
            for kind in ALL
        ]
        return [count for count in summaries if any(count[action] for action in Action)]

    @property
    def steps(self) -> Sequence[Step]:
        return self.all_steps[:MOST_TOLD]

    @property
    def left_out(self) -> int:
        return len(self.all_steps) - len(self.steps)


def import_declaration(
    declaration: Declaration,
    *,
    scope: Any,
    prune: bool,
    dry_run: bool,
    may_change_site: bool,
    expected: str = "",
    check: Callable[[Sequence[Step]], None] = lambda steps: None,
    in_one_line: bool = False,
) -> ImportOutcome:
    """Apply a declaration. Raises ValidationError naming each bad place, PermissionDenied,
    NameTaken, Conflicting.

    `may_change_site`: make clusters, and make and change models. `expected`: the digest of a dry
    run that the user confirmed; empty: any outcome. `check` may refuse the steps before any is
    done. `in_one_line`: the change log gets one line, not one per row. A dry run does everything
    and rolls it back.
    """
    if may_change_site:
        _read_checkpoints(declaration)
    _refuse(declaration.errors)
    with together(), transaction.atomic():
        names = declaration.clusters()
        _lock(names)
        site = read_site(scope, names)
        outcome = ImportOutcome(list(steps(declaration, site, prune=prune)), applied=not dry_run)
        if not may_change_site:
            _check_site_role(outcome.all_steps)
        check(outcome.all_steps)
        _refuse(_unknown_names(outcome.all_steps, site))
        if expected and outcome.digest != expected:
            raise Conflicting(
                "The site was changed since it was compared with the file, so nothing was done; "
                "compare them again."
            )
        written = apply(outcome.all_steps)
        _refuse(_bad_rows(written))
        if dry_run:
            transaction.set_rollback(True)
        else:
            announce(written, in_one_line=in_one_line)
    return outcome


def _read_checkpoints(declaration: Declaration) -> None:
    """Fills in the numbers of new models that the file gives as checkpoints alone.

    Before the transaction, as agents answer in others. Stops at the first that cannot be read.
    """
    known = set(LanguageModel.objects.values_list("name", flat=True))
    lacking = [
        (key, row)
        for key, row in declaration.rows(MODELS).items()
        if key[0] not in known
        and row.values.get("checkpoint")
        and any(name not in row.values for name in NEEDED_NUMBERS)
    ]
    for count, (key, row) in enumerate(lacking):
        if count == MOST_READ:
            text = f"At most {MOST_READ} models of one file are read; give this one's numbers."
            declaration.errors.add(row.place, text)
            return
        try:
            facts = read_checkpoint(row.values["checkpoint"])
        except CheckpointRefused as error:
            declaration.errors.add(row.place, str(error))
            return
        declaration.add_to(MODELS, key, model_columns(facts))


def _lock(names: Sequence[str]) -> None:
    """Lock clusters, so that a second import of one sees the result of the first."""
    rows = Cluster.unscoped.select_for_update().filter(name__in=names).order_by("pk")
    list(rows.values_list("pk", flat=True))


def _check_site_role(found: Iterable[Step]) -> None:
    for step in found:
        if step.kind is MODELS or (step.kind is CLUSTERS and step.action is Action.ADD):
            raise PermissionDenied(
                f"{step.kind.label} {step.name!r}: models, and clusters that are new, need the "
                "role operator on the whole site; ask an administrator for it."
            )


def _unknown_names(found: Sequence[Step], site: Site) -> Errors:
    """Steps that no row can be made of: keys are missing, or the cluster or model is unknown."""
    errors = Errors()
    known = {
        kind.section: {key[0] for key in site.of(kind)}
        | {step.key[0] for step in found if step.kind is kind}
        for kind in (MODELS, CLUSTERS)
    }
    for step in found:
        missing = [name for name in step.kind.required if name not in step.after]
        if step.action is Action.ADD and missing:
            text = f"{step.kind.label} {step.name!r} is new and lacks {', '.join(missing)}; add it."
            errors.add(step.place, text)
        if step.cluster and step.cluster not in known["clusters"]:
            text = f"there is no cluster {step.cluster!r}; declare it in the file or make it first"
            errors.add(step.place, text)
        model = step.after.get("model")
        if model is not None and model not in known["models"]:
            text = f"profile {step.key[-1]!r}: there is no model {model!r}; declare it under models"
            errors.add(step.place, text)
    return errors


def _bad_rows(written: Iterable[Written]) -> Errors:
    """Rows that the clusters, as they are now, cannot have."""
    errors = Errors()
    names: dict[str, ClusterNames] = {}
    for one in written:
        cluster = one.step.cluster
        if not cluster or one.step.action is Action.REMOVE:
            continue
        if cluster not in names:
            names[cluster] = ClusterNames(Cluster.unscoped.get(name=cluster))
        try:
            check_row(one.row, names[cluster])
        except InvalidProblem as error:
            errors.add(one.step.place, str(error))
    return errors


def _refuse(errors: Errors) -> None:
    if not errors.count:
        return
    messages: dict[str, list[str]] = dict(errors.told)
    if errors.left_out:
        more = "more errors, which are like these or follow from them."
        messages["…"] = [f"{errors.left_out:,} {more}"]
    raise ValidationError(messages)
