"""Verbs of a collection from one declaration: list, show, add, edit and remove its rows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from helixweb.client import Rows
from helixweb.command_line import output
from helixweb.command_line.command import Argument, Verbs, argument
from helixweb.command_line.failures import BadUsage
from helixweb.command_line.output import Cells
from helixweb.command_line.resolve import cluster_named
from helixweb.command_line.session import Row, Session

CLUSTER = argument("--cluster", help="its name or id", complete="clusters")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """`find` looks a row up by a word and the cluster that was named; `cells` are those of the
    table, `extra` those of one row beside its fields. `fields` are the options of `add` and `edit`,
    each with the column as its `dest`. `of_cluster`: a row belongs to a cluster."""

    noun: str
    collection: str
    find: Callable[[Session, str, str | None], Row]
    cells: Cells
    fields: Mapping[str, Argument]
    of_cluster: bool = False
    extra: Cells = field(default_factory=dict)

    def rows(self, site: Session) -> Rows:
        return Rows(site.client, self.collection)

    def show(self, site: Session, row: Row) -> None:
        site.show_row(row, {**output.fields(row), **self.extra})

    def changes(self, values: Mapping[str, Any]) -> Row:
        """The columns among the arguments."""
        return {name: values[name] for name in ("name", *self.fields) if name in values}

    def update(self, site: Session, row: Row, body: Row) -> Row:
        """Change a row, unless someone else does meanwhile. Raises Changed."""
        tagged = self.rows(site).get_tagged(row["id"])
        return self.rows(site).update(row["id"], body, if_match=tagged.etag)

    def named(self, word: str = "", **settings: Any) -> Argument:
        """The argument that names a row."""
        return argument(
            word or self.noun, help="its name or id", complete=self.collection, **settings
        )


def column(
    name: str, kind: Callable[[str], object] = str, flag: str = "", help: str = "", **settings: Any
) -> tuple[str, Argument]:
    """An entry of `fields`: a column and its option."""
    flag = flag or f"--{name.replace('_', '-')}"
    return name, argument(flag, dest=name, type=kind, help=help, **settings)


def add_verbs(verbs: Verbs, resource: Resource, *left_out: str) -> None:
    """Declare the verbs of the resource, but those that are `left_out`."""
    noun, fields = resource.noun, tuple(resource.fields.values())
    rename = argument("--name", help="another name")

    def found(site: Session, values: Row, word: str) -> Row:
        return resource.find(site, word, values.get("cluster"))

    def list_(site: Session, **values: Any) -> None:
        site.show_rows(list(resource.rows(site).all()), resource.cells)

    def show(site: Session, **values: Any) -> None:
        resource.show(site, found(site, values, values[noun]))

    def add(site: Session, **values: Any) -> None:
        body = resource.changes(values)
        if resource.of_cluster:
            body["cluster"] = cluster_named(site, values.get("cluster"))["id"]
        resource.show(site, resource.rows(site).create(body))

    def edit(site: Session, **values: Any) -> None:
        row = found(site, values, values[noun])
        if not (body := resource.changes(values)):
            raise BadUsage(f"say what to change; `helixweb {noun} edit --help` lists it")
        resource.show(site, resource.update(site, row, body))

    def remove(site: Session, **values: Any) -> None:
        rows = [found(site, values, word) for word in values[f"{noun}s"]]
        for row in rows:
            resource.rows(site).delete(row["id"])
        names = [row["name"] for row in rows]
        site.show({"removed": names}, f"removed {', '.join(names)}")

    several = resource.named(f"{noun}s", nargs="+", metavar=noun)
    common = (CLUSTER,) if resource.of_cluster else ()
    for act, summary, takes in (
        (list_, f"all {noun}s", ()),
        (show, f"one {noun}", (resource.named(),)),
        (add, f"add a {noun}", (argument("name"), *fields)),
        (edit, f"change a {noun}", (resource.named(), rename, *fields)),
        (remove, f"remove {noun}s with all that belongs to them", (several,)),
    ):
        if act.__name__.strip("_") not in left_out:
            verbs(*common, *takes, summary=summary)(act)
