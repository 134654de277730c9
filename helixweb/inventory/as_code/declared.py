"""What a file declares: rows by kind and cluster, and the place each was read at."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from django.utils.translation import gettext as _

from helixweb.inventory.as_code.kinds import CLUSTERS, Kind, cleaned, name_of
from planner.domain.errors import InvalidProblem

# Of one file; the body of a request is bounded anyway.
MOST_ERRORS = 100
Key = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """One row. `place` is where in the file it stands, as people find it."""

    values: Mapping[str, Any]
    place: str


@dataclass(slots=True)
class Errors:
    """By place what is wrong there; the first hundred are kept, all are counted."""

    told: dict[str, list[str]] = field(default_factory=dict)
    count: int = 0

    def add(self, place: str, message: str) -> None:
        self.count += 1
        if len(self.told) < MOST_ERRORS or place in self.told:
            self.told.setdefault(place, []).append(message)

    @property
    def left_out(self) -> int:
        return self.count - sum(len(messages) for messages in self.told.values())


@dataclass(slots=True)
class Declaration:
    """A whole file. A section that it does not have says nothing about its rows.

    `sections` are by kind and cluster, which is "" for models and clusters.
    """

    sections: dict[tuple[str, str], dict[Key, Declared]] = field(default_factory=dict)
    errors: Errors = field(default_factory=Errors)

    def open(self, kind: Kind, cluster: str = "") -> dict[Key, Declared]:
        """The file has this section, perhaps with no row in it."""
        return self.sections.setdefault((kind.section, cluster), {})

    def add(self, kind: Kind, values: Mapping[str, Any], *, place: str, cluster: str = "") -> None:
        """One row as the file has it; what is wrong with it goes to `errors`."""
        try:
            clean = cleaned(kind, values)
        except InvalidProblem as error:
            self.errors.add(place, str(error))
            return
        rows = self.open(kind, cluster)
        key = tuple(str(clean[name]) for name in kind.key)
        if key in rows:
            self.errors.add(
                place,
                _("%(kind)s %(name)s is told already at %(place)s; keep one.")
                % {"kind": kind.label, "name": repr(name_of(key)), "place": rows[key].place},
            )
            return
        rows[key] = Declared(values=clean, place=place)

    def add_to(self, kind: Kind, key: Key, values: Mapping[str, Any]) -> None:
        """What was found of a declared row, where the file says nothing."""
        rows = self.open(kind)
        rows[key] = replace(rows[key], values={**values, **rows[key].values})

    def has(self, kind: Kind, cluster: str) -> bool:
        return (kind.section, cluster) in self.sections

    def rows(self, kind: Kind, cluster: str = "") -> Mapping[Key, Declared]:
        return self.sections.get((kind.section, cluster), {})

    def clusters(self) -> list[str]:
        """Of which the file says anything."""
        own = [key[0] for key in self.rows(CLUSTERS)]
        return list(dict.fromkeys([*own, *(name for _, name in self.sections if name)]))
