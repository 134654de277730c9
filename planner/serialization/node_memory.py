"""The `memory` of a compute profile: what the model's ends leave a node."""

from planner.document import Section
from planner.domain.node_memory import NodeMemory
from planner.serialization.records import record_from, record_to_dict


def memory_to_dict(memory: NodeMemory) -> dict[str, object]:
    """The section that `memory_from` reads."""
    document = record_to_dict(memory)
    if memory.kv_minimum is None:
        del document["kv_minimum"]
    return document


def memory_from(section: Section) -> NodeMemory:
    """Raises InvalidProblem, which names the key."""
    return record_from(section, NodeMemory)
