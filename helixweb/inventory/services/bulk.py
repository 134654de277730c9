"""Changes many nodes at once: one transaction, one batch in the change log, one event a cluster."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from helixweb.common import events
from helixweb.common.actor import together
from helixweb.common.sentences import sentence
from helixweb.inventory.models import Change, Cluster, Link, Node, NodeTag
from helixweb.inventory.services.change_log import Values, change_of, record_all, values_of
from helixweb.inventory.services.records import forget_members
from helixweb.inventory.validators import validate_name, validate_tag
from planner import InvalidProblem

Value = TypeVar("Value")
# Values in one IN (…): SQLite refuses more parameters than some thousands.
AT_ONCE = 500
# Of one node, and of more.
_CHANGED = (
    gettext_noop("One node was changed."),
    gettext_noop("%(count)s nodes were changed together."),
)
_REMOVED = (
    gettext_noop("One node was removed."),
    gettext_noop("%(count)s nodes were removed together."),
)


def change_nodes(
    rows: QuerySet[Node],
    node_ids: Iterable[int],
    *,
    add_tags: Sequence[str] = (),
    remove_tags: Sequence[str] = (),
    **columns: str,
) -> int:
    """Make these columns, `region` and `profile_name`, and tags alike on those of `rows` with these
    ids; return how many differ from before.

    Raises InvalidProblem, naming what is wrong, and then changes none.
    """
    try:
        validate_name(columns.get("region", ""))
        for tag in (*add_tags, *remove_tags):
            validate_tag(tag)
    except ValidationError as error:
        raise InvalidProblem(error.messages[0]) from error
    with together(), transaction.atomic():
        nodes = _nodes(rows, node_ids)
        _check_profile(nodes.values(), columns.get("profile_name", ""))
        for part in batches(list(nodes)):
            if columns:
                Node.unscoped.filter(pk__in=part).update(**columns)
            if remove_tags:
                NodeTag.unscoped.filter(node__in=part, name__in=remove_tags).delete()
        added = [NodeTag(node_id=key, name=name) for key in nodes for name in add_tags]
        NodeTag.objects.bulk_create(added, ignore_conflicts=True, batch_size=AT_ONCE)
        recorded = record_all(
            change_of(node, Change.Action.CHANGED, before=_told(nodes[key]), after=_told(node))
            for key, node in _nodes(rows, nodes).items()
        )
        _announce([nodes[line.row_id] for line in recorded], "changed", _CHANGED)
    return len(recorded)


def delete_nodes(rows: QuerySet[Node], node_ids: Iterable[int]) -> int:
    """Delete those of `rows` with these ids and their links; return how many there were.

    Agents that have joined stop.
    """
    with together(), transaction.atomic():
        nodes = _nodes(rows, node_ids)
        record_all(
            change_of(node, Change.Action.REMOVED, before=_told(node)) for node in nodes.values()
        )
        _announce(nodes.values(), "removed", _REMOVED)
        by_cluster: dict[int, list[str]] = {}
        for node in nodes.values():
            by_cluster.setdefault(node.cluster_id, []).append(node.name)
        for cluster_id, names in by_cluster.items():
            for part in batches(names):
                ends = Q(source__in=part) | Q(target__in=part)
                Link.unscoped.filter(ends, cluster=cluster_id).delete()
            forget_members(cluster_id, set(names))
        for keys in batches(list(nodes)):
            Node.unscoped.filter(pk__in=keys).delete()
    return len(nodes)


def _nodes(rows: QuerySet[Node], node_ids: Iterable[int]) -> dict[int, Node]:
    """Nodes of `rows` by id, with their tags; unknown ids are ignored."""
    found = {}
    for part in batches(sorted(node_ids)):
        nodes = rows.filter(pk__in=part).prefetch_related("tags")
        found.update({node.pk: node for node in nodes})
    return found


def _told(node: Node) -> Values:
    return {**values_of(node), "tags": sorted(tag.name for tag in node.tags.all())}


def _check_profile(nodes: Iterable[Node], profile_name: str) -> None:
    if not profile_name:
        return
    clusters = Cluster.unscoped.filter(pk__in={node.cluster_id for node in nodes})
    without = clusters.exclude(profiles__name=profile_name).values_list("name", flat=True)
    if without:
        raise InvalidProblem(
            _(
                "cluster %(names)s has no compute profile %(profile_name)s; choose nodes "
                "of clusters that have it, or add the profile there first"
            )
            % {"names": ", ".join(without), "profile_name": repr(profile_name)}
        )


def _announce(nodes: Iterable[Node], state: str, messages: tuple[str, str]) -> None:
    counts: dict[int, int] = {}
    for node in nodes:
        counts[node.cluster_id] = counts.get(node.cluster_id, 0) + 1
    for cluster_id, count in counts.items():
        said = sentence(messages[count > 1], count=count)
        events.emit(f"cluster:{cluster_id}", "node", {"name": "", "state": state, **said})


def batches(values: Sequence[Value]) -> Iterable[Sequence[Value]]:
    """Parts of so many that one statement takes them."""
    for start in range(0, len(values), AT_ONCE):
        yield values[start : start + AT_ONCE]
