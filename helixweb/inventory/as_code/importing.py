"""An import from its file to its outcome: all of it, or nothing and why. A problem file becomes a
new cluster with all its rows, and its model if that is new."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any

from django.db import transaction
from django.utils.translation import gettext as _
from rest_framework.exceptions import PermissionDenied, ValidationError

from helixweb.access.scope import WHOLE_SITE
from helixweb.common.actor import together
from helixweb.inventory.as_code.diff import (
    Action,
    Site,
    Step,
    Written,
    announce,
    apply,
    read_site,
    steps,
)
from helixweb.inventory.as_code.documents import (
    ALL,
    CLUSTERS,
    LINKS,
    MODELS,
    NODES,
    PROFILES,
    REGION_LINKS,
    SHARED,
    Declaration,
    Errors,
    Kind,
    name_of,
)
from helixweb.inventory.cluster_names import ClusterNames
from helixweb.inventory.models import Cluster, LanguageModel, Origin
from helixweb.inventory.services.checkpoint_reading import (
    NEEDED_NUMBERS,
    CheckpointRefused,
    model_columns,
    read_checkpoint,
)
from helixweb.inventory.services.checks import check_row
from helixweb.inventory.services.errors import Conflicting, NameTaken
from planner import InvalidProblem, Node, Problem
from planner.serialization import profile_to_dict

# Steps that an outcome lists one by one; the rest is counted.
MOST_TOLD = 1000
# At most so many checkpoints of one file are read, as each may need the network.
MOST_READ = 16
_MODEL_NUMBERS = ("num_layers", "activation_bytes_per_token", "token_bytes", "bytes_per_layer")


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
