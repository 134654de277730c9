"""Rows of clusters are read within a scope that was given, or not at all."""

from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import BaseCommand
from django.db.models import Max
from django.http import HttpRequest, StreamingHttpResponse
from django.test import RequestFactory

from helixweb.access.models import Grant
from helixweb.access.scope import WHOLE_SITE, Unscoped
from helixweb.celery import app
from helixweb.common.actor import acting
from helixweb.inventory.models import Cluster, Node

AT_IMPORT = Node.objects.order_by("name")


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
        lambda: Node.objects.aiterator(),
        lambda: Node.objects.aggregate(most=Max("pk")),
        lambda: Node.objects.get(name="mini"),
        lambda: list(AT_IMPORT.all()),
    ],
)
def test_a_query_set_without_a_scope_reads_no_row(read: Any) -> None:
    with pytest.raises(Unscoped, match=r"objects\.within\(request\)"):
        read()


WORK: list[Callable[[], Any]] = []


@app.task(name="tests.tenancy")
def read_in_worker() -> Any:
    return WORK[-1]()


def in_a_request(read: Callable[[], Any], request: HttpRequest) -> Any:
    with acting(request):
        return read()


def in_a_task(read: Callable[[], Any], request: HttpRequest) -> Any:
    WORK.append(read)
    return read_in_worker.apply(throw=True).get()


def in_a_command(read: Callable[[], Any], request: HttpRequest) -> Any:
    class Command(BaseCommand):
        def handle(self, *args: Any, **options: Any) -> str:
            return str(read())

    return call_command(Command())


def in_a_stream(read: Callable[[], Any], request: HttpRequest) -> Any:
    with acting(request):
        answer = StreamingHttpResponse(str(read()) for _ in range(1))
    return answer.getvalue()


@pytest.mark.django_db
@pytest.mark.parametrize("place", [in_a_request, in_a_task, in_a_command, in_a_stream])
def test_a_scope_is_given_wherever_the_code_runs(
    cluster: Cluster, request_of: Any, place: Callable[[Callable[[], Any], HttpRequest], Any]
) -> None:
    request = request_of("vera", cluster)
    with pytest.raises(Unscoped):
        place(lambda: Node.objects.count(), request)
    assert str(place(lambda: Node.objects.within(request).count(), request)).strip("b'\n") == "3"
    assert str(place(lambda: Node.unscoped.count(), request)).strip("b'\n") == "4"


@pytest.mark.django_db
def test_each_request_has_its_own_scope(cluster: Cluster, request_of: Any) -> None:
    first = request_of("vera", cluster)
    second = request_of("otto", Cluster.unscoped.get(name="other"))
    assert [node.name for node in AT_IMPORT.within(first)] == ["laptop", "mini", "tower"]
    assert [node.name for node in AT_IMPORT.within(second)] == ["foreign"]
    assert AT_IMPORT.within(WHOLE_SITE).count() == 4


@pytest.mark.django_db
def test_rows_of_a_row_in_scope_are_in_scope(cluster: Cluster, request_of: Any) -> None:
    row = Cluster.objects.within(request_of("vera", cluster)).get()
    assert row.nodes.count() == 3
    (prefetched,) = Cluster.objects.within(WHOLE_SITE).filter(pk=row.pk).prefetch_related("nodes")
    assert len(prefetched.nodes.all()) == 3


@pytest.mark.django_db
def test_a_stranger_has_no_scope(cluster: Cluster) -> None:
    with pytest.raises(Unscoped, match="logged-in"):
        Node.objects.within(RequestFactory().get("/"))
