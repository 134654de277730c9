"""Names of instances: their node's, where that can be one.

They are names of logs and of coordinators' instances too, so they are short and plain, and no two
are the same.
"""

import hashlib
import re
from collections.abc import Collection

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_OTHERS = re.compile(r"[^A-Za-z0-9._-]+")
_NUMBERED = re.compile(r"(.+)\.\d+")
_LONGEST = 56  # with a number behind it 64 at most
_HASH_CHARS = 8
_RESERVED = frozenset({"pipelines"})  # the name of pipelines beside instances


def instance_names(node: str, *, count: int, nodes: Collection[str]) -> list[str]:
    """Names of `count` instances on `node`; `nodes` are the names of all nodes."""
    base = node if _can_be_one(node, nodes) else _made(node)
    return [base] if count == 1 else [f"{base}.{number}" for number in range(count)]


def _can_be_one(node: str, nodes: Collection[str]) -> bool:
    if not _PLAIN.fullmatch(node) or len(node) > _LONGEST or node in _RESERVED:
        return False
    numbered = _NUMBERED.fullmatch(node)
    return numbered is None or numbered[1] not in nodes  # as one of several of that node


def _made(node: str) -> str:
    digest = hashlib.sha256(node.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARS]
    shortened = _OTHERS.sub("-", node).strip("-._")[: _LONGEST - _HASH_CHARS - 1]
    return f"{shortened}-{digest}" if shortened else f"node-{digest}"
