"""Reads what a checkpoint says of its model, on the first machine that can look.

A path or a name is looked up in the site's own models folder (`HELIX_MODELS_DIR`), then a path by
the agents that are online, a name on the hub. No other file of the site's machine is read.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from helixweb.common import events
from helixweb.common.refusals import Unusable
from helixweb.inventory.hub import is_hub_name, read_hub
from helixweb.inventory.models import CheckpointLook, LanguageModel, Node, NodeState
from helixweb.inventory.services.errors import InventoryError
from runtime.checkpoints.errors import CheckpointError
from runtime.checkpoints.hub_names import parse_hub_name
from runtime.checkpoints.metadata import CONFIG
from runtime.checkpoints.model_facts import read_facts
from runtime.protocol.checkpoint_looks import (
    LONGEST_PATH,
    MOST_LOOKS,
    LookAnswer,
    LookOrder,
    ModelFacts,
)

PATIENCE_S = 6.0
_MOST_NODES = 8  # that are asked about one path
_POLL_S = 0.1
_STANDS = timedelta(seconds=30)  # longer than anyone waits for the answer
# A name and a checkpoint are the user's.
_COLUMNS = [
    column.name
    for column in LanguageModel._meta.concrete_fields
    if column.name in ModelFacts.model_fields and column.name not in ("name", "checkpoint")
]
# Without these there is no model.
NEEDED_NUMBERS = ("num_layers", "bytes_per_layer", "activation_bytes_per_token")


class CheckpointRefused(InventoryError, Unusable):
    """A checkpoint that no machine can read; the text says where it was looked for."""

    default_code = "checkpoint_refused"


def model_columns(facts: ModelFacts) -> dict[str, Any]:
    """The facts as columns of a LanguageModel; its name and checkpoint are the user's."""
    return {name: getattr(facts, name) for name in _COLUMNS}


def filled_from(facts: ModelFacts, given: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of a LanguageModel: the facts, but for what is given."""
    stated = {key: value for key, value in given.items() if value not in (None, "")}
    return {**given, "name": facts.name, **model_columns(facts), **stated}


def read_where_needed(given: object) -> ModelFacts | CheckpointRefused | None:
    """Facts from the checkpoint of a request's body, or the refusal.

    None if the body has all numbers, or no checkpoint.
    """
    if not isinstance(given, Mapping) or all(key in given for key in NEEDED_NUMBERS):
        return None
    checkpoint = given.get("checkpoint")
    if not isinstance(checkpoint, str) or not checkpoint.strip():
        return None
    try:
        return read_checkpoint(checkpoint.strip())
    except CheckpointRefused as error:
        return error


def read_checkpoint(given: str) -> ModelFacts:
    """The facts of a folder, a GGUF file or a name on the hub. Raises CheckpointRefused.

    Waits up to `PATIENCE_S` for agents.
    """
    if not given or len(given) > LONGEST_PATH or not given.isprintable():
        raise CheckpointRefused(
            _("Give a folder, a GGUF file, or a name on the hub such as org/model.")
        )
    try:
        is_path = _is_path(given)
        found = _on_site(given) if is_path or is_hub_name(given) else None
        if found is None and not is_path:
            return _on_hub(given)
    except (CheckpointError, OSError) as error:  # such as no right to read it
        raise CheckpointRefused(str(error)) from error
    return found or _by_agents(given)


def standing_looks(node: Node, *, now: datetime) -> tuple[LookOrder, ...]:
    """Open orders to the node's agent to inspect checkpoints."""
    rows = CheckpointLook.unscoped.filter(
        node=node, is_answered=False, asked_at__gt=now - _STANDS
    ).order_by("-pk")[:MOST_LOOKS]
    return tuple(LookOrder(id=row.pk, path=row.path) for row in rows)


def record_looks(node: Node, answers: Iterable[LookAnswer]) -> None:
    """Store an agent's answers to orders that are still open."""
    for answer in answers:
        CheckpointLook.unscoped.filter(pk=answer.id, node=node, is_answered=False).update(
            is_answered=True,
            facts=None if answer.facts is None else answer.facts.model_dump(mode="json"),
            error=answer.error.replace("\0", ""),
        )


def _is_path(given: str) -> bool:
    whole = PurePosixPath(given).is_absolute() or PureWindowsPath(given).is_absolute()
    if not whole and (given.startswith((".", "~")) or "\\" in given):
        raise CheckpointRefused(
            _("%(path)s is not a whole path; agents and the site run in other folders than you.")
            % {"path": repr(given)}
        )
    return whole


def _on_hub(name: str) -> ModelFacts:
    if not is_hub_name(name):
        raise CheckpointRefused(
            _(
                "%(name)s is neither a whole path nor a name on the hub; give /path/to/folder or "
                "org/model."
            )
            % {"name": repr(name)}
        )
    return read_hub(name)


def _on_site(given: str) -> ModelFacts | None:
    """Facts of a checkpoint in the site's models folder; None if it is not there."""
    name = parse_hub_name(given)
    if not settings.HELIX_MODELS_DIR or (name is not None and not name.is_newest):
        return None
    root = Path(settings.HELIX_MODELS_DIR).resolve()
    path = (root / (given if name is None else name.repository)).resolve()
    if not path.is_relative_to(root) or not path.exists():
        return None
    if name is not None and not (path / CONFIG).is_file():
        return None
    facts = read_facts(path)
    return facts.model_copy(update={"checkpoint": given})


def _by_agents(path: str) -> ModelFacts:
    now = timezone.now()
    joined = Node.unscoped.filter(joined_at__isnull=False).order_by("-last_seen_at")
    online = [
        node
        for node in joined[: 4 * _MOST_NODES]
        if node.state_at(now) == NodeState.ONLINE and not node.is_emulated
    ][:_MOST_NODES]
    if not online:
        raise CheckpointRefused(
            _(
                "No machine can look at %(path)s: no agent is online, and the path is not in the "
                "site's models folder (HELIX_MODELS_DIR). Join a machine that has it, or enter the "
                "numbers by hand."
            )
            % {"path": path}
        )
    if transaction.get_connection().in_atomic_block:  # agents would not see the question
        raise CheckpointRefused(
            _(
                "%(path)s is not in the site's models folder, and agents are not asked within a "
                "transaction; send this without Idempotency-Key, or give the numbers."
            )
            % {"path": path}
        )
    CheckpointLook.unscoped.filter(asked_at__lt=now - _STANDS).delete()
    rows = [CheckpointLook.objects.create(node=node, path=path, asked_at=now) for node in online]
    keys = [row.pk for row in rows]
    try:
        _wake(online)
        return _first_answer(path, keys, asked=len(online))
    finally:
        CheckpointLook.unscoped.filter(pk__in=keys).delete()
        _wake(online)  # they forget the order


def _first_answer(path: str, keys: Sequence[int], *, asked: int) -> ModelFacts:
    """Facts from the first agent that finds the checkpoint. Raises CheckpointRefused."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answered = list(
            CheckpointLook.unscoped.filter(pk__in=keys, is_answered=True).select_related("node")
        )
        for row in answered:
            if row.facts is not None:
                return ModelFacts.model_validate(row.facts)
        if len(answered) == asked or time.monotonic() > deadline:
            break
        time.sleep(_POLL_S)
    reasons = [f"{row.node.name}: {row.error}" for row in answered[:3]]
    silent = asked - len(answered)
    if silent:
        reasons.append(
            ngettext("%(count)s agent did not answer", "%(count)s agents did not answer", silent)
            % {"count": silent}
        )
    raise CheckpointRefused(
        _("No agent can read %(path)s. %(answers)s") % {"path": path, "answers": "; ".join(reasons)}
    )


def _wake(nodes: Iterable[Node]) -> None:
    for node in nodes:
        events.emit(node.topic, "desired", {})
