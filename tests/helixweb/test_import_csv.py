"""Nodes and links as CSV, as spreadsheets write it and as they should not."""

import csv
import io
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helixweb.inventory.as_code.csv_files import NODES, read_csv, write_csv
from helixweb.inventory.as_code.documents import MOST_ERRORS
from helixweb.inventory.models import Cluster, Link, NodeTag
from tests.helixweb.inventory_files import EXPORT, bring_in, bring_in_text, client, made_up, steps
from tests.helixweb.looking import answered, denied

PLAIN = st.text(st.characters(exclude_categories=("C",)), min_size=1, max_size=12)


def links_csv(*lines: str) -> str:
    return "\n".join(["source,target,bandwidth_bytes_per_s,latency_s", *lines]) + "\n"


GOOD_CSV: dict[str, Callable[[str], bytes]] = {
    "plain": str.encode,
    "byte order mark": lambda text: text.encode("utf-8-sig"),
    "carriage returns": lambda text: text.replace("\n", "\r\n").encode(),
    "semicolons": lambda text: text.replace(",", ";").encode(),
    "tabs": lambda text: text.replace(",", "\t").encode(),
    "blank lines": lambda text: text.replace("\n", "\n\n,,,\n").encode(),
    "quotes": lambda text: text.replace("tower", '"tower"').encode(),
    "capitals": lambda text: text.replace("source", " Source ").encode(),
}


@pytest.mark.parametrize("write", GOOD_CSV.values(), ids=GOOD_CSV)
def test_csv_of_spreadsheets_is_read(cluster: Cluster, write: Callable[[str], bytes]) -> None:
    content = write(links_csv("tower,laptop,1.25e9,0.001", "tower,mini,5,0"))
    answer = bring_in_text(content, "text/csv", kind="links", cluster=cluster.pk)
    assert steps(answer) == [
        ("add", "links", "tower -> laptop"),
        ("change", "links", "tower -> mini"),
    ]
    assert Link.unscoped.get(target="laptop").bandwidth_bytes_per_s == 1.25e9


BAD_CSV: list[tuple[bytes, tuple[str, ...]]] = [
    (links_csv("tower,laptop,1,0").encode("utf-16"), ("UTF-16", "save it as UTF-8")),
    (links_csv("tower,caf\u00e9,1,0").encode("latin-1"), ("Line 2", "0xe9", "Latin-1")),
    (links_csv("tower,lap\0top,1,0").encode(), ("Line 2", "null character")),
    (b"", ("source", "missing")),
    (b"a,b\n", ("'a'", "is no column", "bandwidth_bytes_per_s")),
    (b"source,target,source\n", ("source", "twice")),
    (b"source,bandwidth_bytes_per_s\n", ("target", "missing")),
    (links_csv("tower,laptop,1").encode(), ("line 2", "3 cells", "4 columns")),
    (links_csv("tower,laptop,fast,0").encode(), ("line 2", "'fast'", "no number")),
    (links_csv("tower,laptop,nan,0").encode(), ("line 2", "nan", "finite number")),
    (links_csv("tower,laptop,,0").encode(), ("line 2", "lacks bandwidth_bytes_per_s")),
    (links_csv("tower,laptop,1,0", "mini,laptop,1,0", "tower,laptop,2,0").encode(),
     ("line 4", "tower -> laptop", "already at line 2")),
    (links_csv('tower,"laptop,1,0').encode(), ("Line 2", "quotes")),
    (links_csv("attic,laptop,1,0").encode(), ("line 2", "'attic'", "not a node")),
]  # fmt: skip


@pytest.mark.parametrize(("content", "said"), BAD_CSV, ids=range(len(BAD_CSV)))
def test_bad_csv_changes_nothing_and_names_line_value_and_remedy(
    cluster: Cluster, content: bytes, said: tuple[str, ...]
) -> None:
    denied(bring_in_text(content, "text/csv", kind="links", cluster=cluster.pk), 400, *said)
    assert Link.unscoped.count() == 1


def test_csv_names_its_cluster_in_a_column_or_beside_it(cluster: Cluster) -> None:
    with_column = b"cluster,name,region,tags\ntiny,shed,away,loud dusty\n"
    assert steps(bring_in_text(with_column, "text/csv", kind="nodes")) == [("add", "nodes", "shed")]
    assert sorted(NodeTag.unscoped.values_list("name", flat=True)) == ["dusty", "loud"]
    for content, query in (
        (with_column, {"kind": "nodes", "cluster": cluster.pk}),
        (b"name\nx\n", {"kind": "nodes"}),
        (b"cluster,name\n,x\n", {"kind": "nodes"}),
        (b"cluster,name\nattic,x\n", {"kind": "nodes"}),
        (b"name\nx\n", {"cluster": cluster.pk}),
        (b"name\nx\n", {"kind": "models", "cluster": cluster.pk}),
    ):
        assert bring_in_text(content, "text/csv", **query).status_code == 400


@pytest.mark.usefixtures("user")
def test_csv_that_was_exported_says_nothing_new() -> None:
    bring_in(made_up(random.Random(9)))
    for kind in ("nodes", "links", "region_links"):
        answer = answered(client().get(EXPORT, {"kind": kind}, headers={"Accept": "text/csv"}), 200)
        assert len(answer.content.splitlines()) > 2
        assert steps(bring_in_text(answer.content, "text/csv", kind=kind, prune=True)) == []
    refused = answered(client().get(EXPORT, headers={"Accept": "text/csv"}), 400)
    assert refused.headers["Content-Type"] == "application/problem+json"
    assert "nodes" in refused.json()["detail"]


def test_csv_prunes_what_it_leaves_out(cluster: Cluster) -> None:
    content = links_csv("tower,laptop,1,0").encode()
    answer = bring_in_text(content, "text/csv", kind="links", cluster=cluster.pk, prune=True)
    assert [one[0] for one in steps(answer)] == ["add", "remove"]
    assert [str(link) for link in Link.unscoped.all()] == ["tower -> laptop"]


def test_a_hundred_thousand_bad_lines_are_counted_and_the_first_are_told(cluster: Cluster) -> None:
    content = links_csv(*("tower,laptop,none,0" for _ in range(100_000))).encode()
    answer = answered(bring_in_text(content, "text/csv", kind="links", cluster=cluster.pk), 400)
    errors = answer.json()["errors"]
    assert len(errors) == MOST_ERRORS + 1
    assert errors[0]["field"] == "line 2"
    assert "99,900 more errors" in errors[-1]["message"]


def test_more_lines_than_are_read_at_once_are_refused(cluster: Cluster) -> None:
    content = b"name\n" + b"\n" * 200_001 + b"x\n"
    answer = answered(bring_in_text(content, "text/csv", kind="nodes", cluster=cluster.pk), 400)
    assert "200,000 lines" in answer.json()["detail"]


def test_many_rows_take_few_queries(cluster: Cluster, django_assert_max_num_queries: Any) -> None:
    names = [f"n{number}" for number in range(1500)]
    nodes = "name\n" + "".join(f"{name}\n" for name in names)
    with django_assert_max_num_queries(150):
        bring_in_text(nodes, "text/csv", kind="nodes", cluster=cluster.pk)
    links = links_csv(*(f"tower,{name},1,0" for name in names))
    with django_assert_max_num_queries(150):
        answer = bring_in_text(links, "text/csv", kind="links", cluster=cluster.pk)
    assert len(answer.json()["steps"]) == 1000
    assert answer.json()["left_out"] == 500
    assert Link.unscoped.filter(source="tower").count() == 1501


@given(st.lists(PLAIN.filter(lambda text: text == text.strip()), unique=True, max_size=5))
def test_names_survive_csv_and_are_no_formulas(names: list[str]) -> None:
    text = write_csv(NODES, (("tiny", {"name": name, "region": name}) for name in names))
    for row in list(csv.reader(io.StringIO(text)))[1:]:
        assert not any(cell.startswith(("=", "+", "-", "@")) for cell in row)
    declaration = read_csv(text.encode(), kind=NODES, cluster="")
    told = [row.values["region"] for row in declaration.rows(NODES, "tiny").values()]
    refused = declaration.errors.count
    assert len(told) + refused == len(names)
    assert set(told) <= set(names)
    reserved = {"source", "sink", "coordinator"}
    assert refused <= sum(name in reserved or len(name) > 64 for name in names)
