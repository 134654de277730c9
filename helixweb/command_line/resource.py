"""Verbs of a collection from one declaration: list, show, add, edit and remove its rows."""

from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from helixweb.client import Row, Rows
from helixweb.command_line import output
from helixweb.command_line.command import Argument, Verbs, argument
from helixweb.command_line.failures import BadUsage
from helixweb.command_line.output import Cells
from helixweb.command_line.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """`find` looks a row up by the word of a person; `cells` are those of the table,
    `extra` those of one row beside its fields. `fields` are the options of `add` and `edit`, each
    with the column as its `dest`."""

    noun: str
    collection: str
    find: Callable[[Session, Namespace, str], Row]
    cells: Cells
    fields: Mapping[str, Argument]
    common: tuple[Argument, ...] = ()
    extra: Cells = field(default_factory=dict)

    def rows(self, site: Session) -> Rows:
        return Rows(site.client, self.collection)

    def show(self, site: Session, row: Row) -> None:
        site.show_row(row, {**output.fields(row), **self.extra})

    def changes(self, arguments: Namespace) -> Row:
        """The columns that were given."""
        values = {name: getattr(arguments, name) for name in ("name", *self.fields)}
        return {name: value for name, value in values.items() if value is not None}

    def update(self, site: Session, row: Row, body: Row) -> Row:
        """Change a row, unless someone else does meanwhile. Raises Changed."""
        tagged = self.rows(site).get_tagged(row["id"])
        return self.rows(site).update(row["id"], body, if_match=tagged.etag)

    def named(self, word: str = "", **settings: Any) -> Argument:
        """The argument that names a row."""
        return argument(
            word or self.noun, **({"help": "its name or id"} | settings), complete=self.collection
        )


def column(name: str, flag: str = "", **settings: Any) -> tuple[str, Argument]:
    """An entry of `fields`: a column and its option."""
    return name, argument(flag or f"--{name.replace('_', '-')}", dest=name, **settings)


def add_verbs(verbs: Verbs, resource: Resource, *left_out: str) -> None:
    """Declare the verbs of the resource, but those that are `left_out`."""
    noun, fields, common = resource.noun, tuple(resource.fields.values()), resource.common
    rename = argument("--name", help="another name")

    def list_rows(site: Session, arguments: Namespace) -> None:
        site.show_rows(list(resource.rows(site).all()), resource.cells)

    def show(site: Session, arguments: Namespace) -> None:
        resource.show(site, resource.find(site, arguments, getattr(arguments, noun)))

    def add(site: Session, arguments: Namespace) -> None:
        resource.show(site, resource.rows(site).create(resource.changes(arguments)))

    def edit(site: Session, arguments: Namespace) -> None:
        row = resource.find(site, arguments, getattr(arguments, noun))
        if not (body := resource.changes(arguments)):
            raise BadUsage(f"say what to change; `helixweb {noun} edit --help` lists it")
        resource.show(site, resource.update(site, row, body))

    def remove(site: Session, arguments: Namespace) -> None:
        words = getattr(arguments, f"{noun}s")
        rows = [resource.find(site, arguments, word) for word in words]
        for row in rows:
            resource.rows(site).delete(row["id"])
        names = [row["name"] for row in rows]
        site.show({"removed": names}, f"removed {', '.join(names)}")

    several = resource.named(f"{noun}s", nargs="+", metavar=noun)
    for name, act, summary, takes in (
        ("list", list_rows, f"all {noun}s", ()),
        ("show", show, f"one {noun}", (resource.named(),)),
        ("add", add, f"add a {noun}", (argument("name"), *fields)),
        ("edit", edit, f"change a {noun}", (resource.named(), rename, *fields)),
        ("remove", remove, f"remove {noun}s with all that belongs to them", (several,)),
    ):
        if name not in left_out:
            verbs(name, summary, *common, *takes)(act)
