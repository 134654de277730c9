"""The `memory` of a compute profile: what the model's ends leave a node."""

from dataclasses import asdict

from planner.document import Section
from planner.domain.errors import InvalidProblem
from planner.domain.node_memory import EndRoom, KvMinimum, NodeMemory


def memory_to_dict(memory: NodeMemory) -> dict[str, object]:
    """The section that `memory_from` reads."""
    document: dict[str, object] = {
        "first": asdict(memory.first),
        "last": asdict(memory.last),
        "both": asdict(memory.both),
        "reserve_bytes": memory.reserve_bytes,
    }
    if memory.kv_minimum is not None:
        document["kv_minimum"] = asdict(memory.kv_minimum)
    return document


def memory_from(section: Section) -> NodeMemory:
    """Raises InvalidProblem, which names the key."""
    section.allow_only("first", "last", "both", "kv_minimum", "reserve_bytes")
    reserve = section.number_from_zero("reserve_bytes") if section.has("reserve_bytes") else 0.0
    try:
        first, last, both = (_end_room(section.section(key)) for key in ("first", "last", "both"))
        return NodeMemory(
            first=first,
            last=last,
            both=both,
            kv_minimum=(
                _kv_minimum(section.section("kv_minimum")) if section.has("kv_minimum") else None
            ),
            reserve_bytes=reserve,
        )
    except InvalidProblem as error:
        where = "" if section.path in str(error) else f"{section.path}: "
        raise InvalidProblem(f"{where}{error}") from None


def _kv_minimum(section: Section) -> KvMinimum:
    section.allow_only("requests", "tokens")
    return KvMinimum(
        requests=section.integer("requests", minimum=1),
        tokens=section.integer("tokens", minimum=1),
    )


def _end_room(section: Section) -> EndRoom:
    section.allow_only("max_layers", "kv_token_layers_less")
    key = "kv_token_layers_less"
    return EndRoom(
        max_layers=section.integer("max_layers", minimum=0),
        kv_token_layers_less=section.number_from_zero(key) if section.has(key) else 0.0,
    )
