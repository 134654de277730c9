"""Bandwidth that several links share: from a problem file to the page, to programs and to plans."""

from copy import deepcopy
from typing import Any

import pytest
from django.db.models import QuerySet
from django.test import Client
from django.urls import reverse
from rest_framework.test import APIClient

from helixweb.inventory.as_code.importing import import_problem
from helixweb.inventory.models import Cluster, LanguageModel, Node, SharedBandwidth
from helixweb.inventory.services import bulk, problems, records
from planner.domain.errors import InvalidProblem
from planner.plan_options import PlanOptions
from planner.serialization import problem_from_dict
from tests.helixweb.looking import answered, denied, shows
from tests.helixweb.searching import begun

Document = dict[str, Any]
URL = "/api/v1/shared-bandwidths/"
UPLINK = {
    "name": "uplink", "members": ["home"], "direction": "egress",
    "bandwidth_bytes_per_s": 12.5e6, "scope": "region",
}  # fmt: skip
CARD = {
    "name": "card of tower", "members": ["tower", "coordinator"], "direction": "ingress",
    "bandwidth_bytes_per_s": 300.0, "scope": "nic",
}  # fmt: skip


@pytest.fixture
def document(tiny_problem: Document) -> Document:
    changed = deepcopy(tiny_problem)
    changed["network"]["shared"] = [UPLINK, CARD]
    return changed


@pytest.fixture
def shared(document: Document, user: Any) -> Cluster:
    return import_problem(problem_from_dict(document))


def rows(cluster: Cluster) -> QuerySet[SharedBandwidth]:
    return cluster.shared_bandwidths.order_by("pk")


def members(cluster: Cluster) -> dict[str, list[str]]:
    return {row.name: row.members for row in rows(cluster)}


def test_what_a_file_shares_is_imported_and_exported_whole(
    shared: Cluster, document: Document, api: APIClient, user: Any
) -> None:
    built = problems.build_problem(shared, LanguageModel.objects.get())
    assert built == problem_from_dict(document)
    exported = api.get(f"/api/v1/clusters/{shared.pk}/problem/").json()
    run = begun(shared, user, PlanOptions())
    assert exported["network"]["shared"] == run.problem["network"]["shared"] == [UPLINK, CARD]


def test_a_name_that_no_row_can_have_is_refused_so(document: Document, user: Any) -> None:
    document["network"]["shared"][0] = {**UPLINK, "name": "n" * 65}
    with pytest.raises(InvalidProblem, match=r"shared bandwidth 'n+': name"):
        import_problem(problem_from_dict(document))
    assert not Cluster.unscoped.exists()


def test_a_node_that_goes_is_forgotten_and_one_that_is_renamed_stays(shared: Cluster) -> None:
    tower = Node.unscoped.get(name="tower")
    records.update(tower, name="spire")
    assert members(shared)["card of tower"] == ["spire", "coordinator"]
    records.delete(Node.unscoped.get(name="spire"))
    assert members(shared)["card of tower"] == ["coordinator"]
    records.create(
        SharedBandwidth, cluster=shared, **{**CARD, "name": "card of mini", "members": ["mini"]}
    )
    bulk.delete_nodes(Node.unscoped.all(), [Node.unscoped.get(name="mini").pk])
    assert "card of mini" not in members(shared)


def test_a_region_whose_last_node_went_limits_nothing(shared: Cluster) -> None:
    away = {**UPLINK, "name": "away's", "members": ["away"]}
    records.create(SharedBandwidth, cluster=shared, **away)
    for node in Node.unscoped.filter(region="away"):
        records.update(node, region="home")
    problem = problems.build_problem(shared, LanguageModel.objects.get())
    assert "away's" not in {share.name for share in problem.cluster.shared}


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"members": ["attic"]}, "member 'attic' is neither a node nor a region of cluster 'tiny'"),
        ({"members": []}, "There is no member"),
        ({"members": ["home", "home"]}, "'home' is named twice"),
        ({"direction": "sideways"}, "sideways"),
        ({"bandwidth_bytes_per_s": 0}, "greater than 0"),
        ({"name": "coordinator"}, "reserved"),
    ],
)
def test_what_cannot_be_shared_is_refused_with_the_remedy(
    cluster: Cluster, api: APIClient, wrong: Document, says: str
) -> None:
    denied(api.post(URL, {"cluster": cluster.pk, **UPLINK, **wrong}), 400, says)
    assert not SharedBandwidth.unscoped.exists()


def test_the_network_page_shows_them_and_their_forms(shared: Cluster, browser: Client) -> None:
    url = reverse("network", args=[shared.pk])
    shows(browser.get(url), "uplink", "100 Mbit/s", "tower, coordinator", "out of its members")
    new = reverse("shared-bandwidth-new", args=[shared.pk])
    typed = {
        "name": "wan", "members": "home\nmini\n", "direction": "ingress", "scope": "nic",
        "bandwidth_bytes_per_s": "80",
    }  # fmt: skip
    assert "-----" not in browser.get(new).content.decode(), "one of each is chosen already"
    assert browser.post(new, typed).headers["Location"] == f"{url}#shared"
    row = SharedBandwidth.unscoped.get(name="wan")
    assert (row.members, row.bandwidth_bytes_per_s) == (["home", "mini"], 1e7)
    edit = reverse("shared-bandwidth-edit", args=[shared.pk, row.pk])
    form = browser.get(edit).context["form"]
    assert (form["members"].value(), form["bandwidth_bytes_per_s"].value()) == ("home\nmini", 80.0)
    refused = answered(browser.post(edit, {**typed, "members": "attic"}), 422)
    assert "&#x27;attic&#x27; is neither a node nor a region" in refused.content.decode()
