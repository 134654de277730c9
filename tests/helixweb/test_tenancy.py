"""Rows of clusters are read within the scope of a user, or not at all."""

import threading
from typing import Any

import pytest
from django.test import RequestFactory
from rest_framework.test import APIClient

from helixweb.access.models import Grant
from helixweb.access.scope import Unscoped
from helixweb.common.actor import acting, acting_for_site
from helixweb.inventory.models import Cluster, Node

AT_IMPORT = Node.objects.order_by("name")


def outside(work: Any) -> Any:
    """Done where neither a request nor a declaration is: in a thread of its own."""
    done: list[Any] = []

    def run() -> None:
        try:
            done.append(work())
        except Unscoped as error:
            done.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    return done[0]


@pytest.fixture
def request_of(cluster: Cluster, django_user_model: Any) -> Any:
    """A request of a viewer of one cluster."""
    Cluster.objects.create(name="other").nodes.create(name="foreign", region="home")

    def made(name: str, on: Cluster) -> Any:
        request = RequestFactory().get("/")
        request.user = django_user_model.objects.create_user(name)
        Grant.objects.create(user=request.user, role="viewer", cluster=on)
        return request

    return made


@pytest.mark.parametrize(
    "read",
    [
        lambda: list(Node.objects.all()),
        lambda: Node.objects.count(),
        lambda: Node.objects.filter(name="mini").exists(),
        lambda: Node.objects.filter(name="mini").update(region="x"),
        lambda: Node.objects.filter(name="mini").delete(),
        lambda: Node.objects.values_list("name", flat=True).first(),
        lambda: list(Node.objects.iterator()),
        lambda: Node.objects.get(name="mini"),
        lambda: list(AT_IMPORT.all()),
    ],
)
def test_code_that_serves_no_request_and_declares_nothing_reads_no_row(read: Any) -> None:
    error = outside(read)
    assert isinstance(error, Unscoped)
    assert "acting_for_site" in str(error)


@pytest.mark.django_db
def test_a_query_set_from_before_a_request_is_read_only_through_all(
    cluster: Cluster, request_of: Any
) -> None:
    with acting(request_of("vera", cluster)):
        with pytest.raises(Unscoped, match="before the request"):
            list(AT_IMPORT)
        assert [node.name for node in AT_IMPORT.all()] == ["laptop", "mini", "tower"]
        assert not Node.objects.filter(name="foreign").exists()


@pytest.mark.django_db
def test_what_one_request_narrowed_is_not_read_in_another(
    cluster: Cluster, request_of: Any
) -> None:
    first, second = (
        request_of("vera", cluster),
        request_of("otto", Cluster.objects.get(name="other")),
    )
    with acting(first):
        kept = Node.objects.order_by("name")
    with acting(second):
        with pytest.raises(Unscoped, match="another request"):
            list(kept)
        with pytest.raises(Unscoped, match="another request"):
            kept.all()
        assert [node.name for node in Node.objects.all()] == ["foreign"]


@pytest.mark.django_db
def test_a_stranger_in_a_request_reads_no_row(cluster: Cluster) -> None:
    request = RequestFactory().get("/")
    with acting(request), pytest.raises(Unscoped):
        Node.objects.count()


@pytest.mark.django_db
def test_what_declares_to_act_for_the_site_reads_all_and_a_request_within_does_not(
    cluster: Cluster, request_of: Any
) -> None:
    request = request_of("vera", cluster)
    with acting_for_site():
        assert Node.objects.count() == 4
        with acting(request):
            assert Node.objects.count() == 3
        assert Node.objects.count() == 4


@pytest.mark.django_db
def test_a_query_set_made_for_the_site_is_narrowed_for_a_user(
    cluster: Cluster, request_of: Any
) -> None:
    """As by a module that is first imported while a command, or an agent's request, is served."""
    with acting_for_site():
        at_import = Node.objects.order_by("name")
    with acting(request_of("vera", cluster)):
        with acting_for_site():
            in_request = Node.objects.all()
            assert in_request.count() == at_import.all().count() == 4
        assert in_request.count() == 4, "declared within this request"
        with pytest.raises(Unscoped, match="before the request"):
            list(at_import)
        assert [node.name for node in at_import.all()] == ["laptop", "mini", "tower"]


@pytest.mark.django_db
def test_a_program_of_one_cluster_reaches_no_other(cluster: Cluster, request_of: Any) -> None:
    request = request_of("vera", cluster)
    api = APIClient()
    api.force_authenticate(request.user)
    names = [row["name"] for row in api.get("/api/v1/nodes/").json()["results"]]
    assert set(names) == {"laptop", "mini", "tower"}
