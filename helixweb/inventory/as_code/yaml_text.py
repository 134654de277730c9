"""Writes a document as YAML that `planner.document` reads as the same values."""

from typing import Any

import yaml

from planner.yaml_reader import NUMBER

_Base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_Base):  # type: ignore[misc]  # which of two is known when it runs
    """Quotes texts like 1e5 or 0o17, which YAML 1.2 and our reader take for numbers."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", NUMBER, list("-+0123456789."))


def yaml_text(document: Any) -> str:
    """One line for every row without lists in it, so that files compare well line by line."""
    text: str = yaml.dump(
        document,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=None,
        width=1_000_000,
    )
    return text
