"""Which engine of a node would compute a model's layers, as its agent announced its engines."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.utils.translation import gettext as _

from helixweb.inventory.models import Cluster, LanguageModel, Node
from runtime.checkpoints.engine_fit import Choice, ModelTraits, Reason, choose
from runtime.protocol.engines import Engine, EngineOffer


def takes_engines(hardware: Mapping[str, Any] | None) -> bool:
    """True if the agent knows of engines, and has announced them."""
    return bool(hardware and hardware.get("engines"))


def choice_of(
    hardware: Mapping[str, Any] | None, model: LanguageModel, *, asked: Engine | None = None
) -> Choice | None:
    """The engine of a stage on the node if a deployment requests `asked` (None: the model's
    engine). Returns None if the node has announced no engines."""
    if hardware is None or not takes_engines(hardware):
        return None
    return choose(
        ModelTraits.by_name(
            family=model.architecture,
            weights=model.dtype,
            checkpoint=model.checkpoint,
            why_not_split=model.why_not_split,
        ),
        [EngineOffer.model_validate(offer) for offer in hardware["engines"]],
        node=Engine(hardware["engine"]),
        deployment=Engine(model.engine) if asked is None else asked,
    )


def reason_text(reason: Reason) -> str:
    """The reason in the reader's language."""
    if not reason.text:
        return ""
    return _(reason.text) % reason.values if reason.values else _(reason.text)


def why_text(choice: Choice) -> str:
    """Why it was chosen; or why none can be, and the remedy."""
    return "; ".join(filter(None, (reason_text(choice.reason), reason_text(choice.remedy))))


def left_out(cluster: Cluster, model: LanguageModel) -> dict[str, str]:
    """Nodes whose engines cannot run stages of the model, by name, and why, with the remedy."""
    found = {}
    for name, hardware in cluster.nodes.order_by("pk").values_list("name", "hardware"):
        choice = choice_of(hardware, model)
        if choice is not None and choice.engine is None:
            found[name] = why_text(choice)
    return found


def engine_groups(model: LanguageModel, nodes: Iterable[Node]) -> list[dict[str, Any]]:
    """Nodes that have announced engines, by what they would do with the model; engine None: they
    cannot compute it, as `why` says."""
    groups: dict[tuple[Engine | None, str, bool], list[Node]] = {}
    for node in nodes:
        choice = choice_of(node.hardware, model)
        if choice is not None:
            key = choice.engine, why_text(choice), choice.is_slow
            groups.setdefault(key, []).append(node)
    return [
        {"engine": engine, "why": why, "is_slow": is_slow, "nodes": members}
        for (engine, why, is_slow), members in groups.items()
    ]
