"""What a file declares: rows by kind and cluster, and the place each was read at."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from django.utils.translation import gettext as _

from helixweb.inventory.as_code.kinds import Kind, cleaned, name_of
from planner.domain.errors import InvalidProblem

# Of one file; the body of a request is bounded anyway.
MOST_ERRORS = 100
Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """The rows of one kind of one cluster; `cluster` is "" for models and clusters."""

    kind: str
    cluster: str


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
    """A whole file. A section that it does not have says nothing about its rows."""

    sections: dict[Section, dict[Key, Declared]] = field(default_factory=dict)
    errors: Errors = field(default_factory=Errors)

    def open(self, kind: Kind, cluster: str = "") -> None:
        """The file has this section, perhaps with no row in it."""
        self.sections.setdefault(Section(kind.section, cluster), {})

    def add(self, kind: Kind, values: Mapping[str, Any], *, place: str, cluster: str = "") -> None:
        """One row as the file has it; what is wrong with it goes to `errors`."""
        try:
            clean = cleaned(kind, values)
        except InvalidProblem as error:
            self.errors.add(place, str(error))
            return
        self.open(kind, cluster)
        rows = self.sections[Section(kind.section, cluster)]
        key = tuple(str(clean[name]) for name in kind.key)
        known = rows.get(key)
        if known is not None:
            self.errors.add(
                place,
                _("%(kind)s %(name)s is told already at %(place)s; keep one.")
                % {"kind": kind.label, "name": repr(name_of(key)), "place": known.place},
            )
            return
        rows[key] = Declared(values=clean, place=place)

    def add_to(self, kind: Kind, key: Key, values: Mapping[str, Any]) -> None:
        """What was found of a declared row, where the file says nothing."""
        rows = self.sections[Section(kind.section, "")]
        rows[key] = replace(rows[key], values={**values, **rows[key].values})

    def rows(self, kind: Kind, cluster: str = "") -> Mapping[Key, Declared]:
        return self.sections.get(Section(kind.section, cluster), {})

    def clusters(self) -> Iterator[str]:
        """Of which the file says anything."""
        found = [key[0] for key in self.rows_of_clusters()]
        yield from dict.fromkeys([*found, *(one.cluster for one in self.sections if one.cluster)])

    def rows_of_clusters(self) -> Mapping[Key, Declared]:
        return self.sections.get(Section("clusters", ""), {})
