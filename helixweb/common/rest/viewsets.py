"""Collections: lists and rows to read, to delete, and to edit; many rows at once too, all or
nothing, with the errors of every item."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, ClassVar, TypeVar

from django.db import models, transaction
from django.http import Http404
from django.shortcuts import get_object_or_404
from rest_framework import exceptions, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from helixweb.common.actor import together
from helixweb.common.queries import within
from helixweb.common.refusals import Refused
from helixweb.common.rest.etags import check_if_match, edit_tag, tagged, tagged_list
from helixweb.common.rest.lists import (
    FIELDS,
    Filters,
    Ordering,
    Search,
    parameters_of_list,
    wanted_fields,
)
from helixweb.common.rest.views import RestMixin
from helixweb.common.serializers import StrictFieldsMixin
from planner import PlannerError

MAX_ITEMS = 500
_TEXT_OF_404 = "There is no such row."


Row = TypeVar("Row", bound=models.Model)


def _id() -> serializers.IntegerField:
    return serializers.IntegerField(min_value=1, max_value=models.BigAutoField.MAX_BIGINT)


class BatchSerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """What to do; the rows themselves are looked at one by one."""

    delete = serializers.ListField(child=_id(), default=list)
    update = serializers.DictField(  # type: ignore[assignment]
        child=serializers.DictField(), default=dict
    )
    create = serializers.ListField(  # type: ignore[assignment]
        child=serializers.DictField(), default=list
    )
    if_match = serializers.DictField(child=serializers.CharField(), default=dict)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        count = sum(len(attrs[name]) for name in ("delete", "update", "create"))
        if not 1 <= count <= MAX_ITEMS:
            raise serializers.ValidationError(
                f"There are {count:,} rows in it; give 1 to {MAX_ITEMS}, and the rest in another."
            )
        if len(set(attrs["delete"])) < len(attrs["delete"]):
            raise serializers.ValidationError({"delete": ["A row is named twice; name it once."]})
        for name in ("update", "if_match"):
            attrs[name] = {_id_of(name, key): value for key, value in attrs[name].items()}
        both = sorted(attrs["update"].keys() & set(attrs["delete"]))
        if both:
            text = f"Row {both[0]} is to be changed and deleted; do one of the two."
            raise serializers.ValidationError({"update": [text]})
        strangers = sorted(attrs["if_match"].keys() - attrs["update"].keys() - {*attrs["delete"]})
        if strangers:
            text = f"Row {strangers[0]} is neither changed nor deleted here; leave it out."
            raise serializers.ValidationError({"if_match": [text]})
        return attrs


@cache
def documented_batch(serializer: Any) -> tuple[Any, Any]:
    """The same with the rows of one collection in it, and its answer, for the OpenAPI document."""
    name = serializer.__name__.removesuffix("Serializer")
    request = {
        "__doc__": f"At most {MAX_ITEMS} rows to delete, to change by id, and to make, in this "
        "order. `if_match`: the ETags of rows as they were read, by id.",
        "update": serializers.DictField(child=serializer(partial=True), required=False),
        "create": serializer(many=True, required=False),
    }
    answer = {
        "__doc__": "The rows as they are now.",
        "deleted": serializers.ListField(child=serializers.IntegerField(), read_only=True),
        "updated": serializer(many=True, read_only=True),
        "created": serializer(many=True, read_only=True),
    }
    return (
        type(f"{name}BatchSerializer", (BatchSerializer,), request),
        type(f"{name}BatchDoneSerializer", (serializers.Serializer,), answer),
    )


class Batch:
    """Processes item after item, and collects errors; use it in a transaction."""

    def __init__(self) -> None:
        self._refused: dict[str, Any] = {}

    def each(
        self, name: str, items: Mapping[Any, Any], do: Callable[[Any, Any], Any]
    ) -> Iterator[Any]:
        """Results of `do(key, item)` for each item that is not refused."""
        for key, item in items.items():
            try:
                with transaction.atomic():
                    yield do(key, item)
            except Http404:
                self._refused[f"{name}[{key}]"] = [_TEXT_OF_404]
            except exceptions.APIException as error:
                self._refused[f"{name}[{key}]"] = _listed(error.detail)
            except (PlannerError, Refused) as error:
                self._refused[f"{name}[{key}]"] = [str(error)]

    def finish(self) -> None:
        """Raise ValidationError, which rolls everything back, if any item was refused."""
        if self._refused:
            raise exceptions.ValidationError(self._refused)


def _listed(detail: Any) -> Any:
    return detail if isinstance(detail, dict | list) else [detail]


def _id_of(name: str, key: str) -> int:
    try:
        return int(_id().run_validation(key))
    except serializers.ValidationError as error:
        raise serializers.ValidationError({f"{name}[{key[:40]}]": error.detail}) from error


class ReadViewSet(RestMixin, viewsets.ReadOnlyModelViewSet[Row]):
    """A list and each row, with ETags."""

    filter_backends = (Filters, Search, Ordering)
    search_fields: ClassVar[tuple[str, ...]] = ()
    # Query parameters of actions beside the list and the row.
    action_parameters: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    # Fields of a row that change without an edit.
    changing_by_itself: ClassVar[tuple[str, ...]] = ()

    def get_queryset(self) -> Any:
        return within(super().get_queryset(), self.request)

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        fields = wanted_fields(request, self.get_serializer_class())
        page = self.paginate_queryset(self.filter_queryset(self.get_queryset()))
        serializer: Any = self.get_serializer(page, many=True)
        if fields is not None:
            for name in serializer.child.fields.keys() - set(fields):
                del serializer.child.fields[name]
        return tagged_list(request, self.get_paginated_response(serializer.data))

    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.row_response(self.get_object())

    def query_parameters(self) -> Iterable[str]:
        if self.action == "list":
            return parameters_of_list(self)
        if self.action == "retrieve":
            return (FIELDS,)
        return self.action_parameters.get(self.action) or super().query_parameters() or ()

    def row_response(self, row: Row, *, status: int = status.HTTP_200_OK) -> Response:
        """The row as it is shown, with its ETag."""
        data = self.get_serializer(row).data
        fields = wanted_fields(self.request, self.get_serializer_class())
        shown = data if fields is None else {name: data[name] for name in fields}
        return tagged(self.request, Response(shown, status=status), self._edit_tag_of(data))

    def _edit_tag_of(self, data: Any) -> str:
        return edit_tag(data, changing_by_itself=self.changing_by_itself)


class VersionedViewSet(ReadViewSet[Row]):
    """Rows that are edited as they were read, or not at all: by `asked_object`."""

    locking: ClassVar[frozenset[str]] = frozenset({"destroy", "partial_update", "batch"})

    def filter_queryset(self, queryset: Any) -> Any:
        """Rows to be edited are locked, so that of two edits one sees the other."""
        rows = super().filter_queryset(queryset)
        return rows.select_for_update(of=("self",)) if self.action in self.locking else rows

    def asked_object(self) -> Row:
        """The row; call it in a transaction. Raises Stale where If-Match names another version."""
        row = self.get_object()
        self._check_version(row, self.request.headers.get("If-Match"))
        return row

    def checks_version(self) -> bool:
        return self.action in ("destroy", "partial_update")

    def _check_version(self, row: Row, given: str | None) -> None:
        if given is not None:
            check_if_match(given, self._edit_tag_of(self.get_serializer(row).data))


class DeleteViewSet(VersionedViewSet[Row], ABC):
    """Rows that can be read and deleted."""

    def destroy(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        with transaction.atomic():
            self.perform_destroy(self.asked_object())
        return Response(status=status.HTTP_204_NO_CONTENT)

    @abstractmethod
    def perform_destroy(self, instance: Row) -> None:
        """Delete by the service, which also logs and announces it."""


class CreateViewSet(ReadViewSet[Row]):
    """Rows that can be read and created; the serializer calls the service."""

    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        serializer = self.get_serializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        return self.row_response(serializer.save(), status=status.HTTP_201_CREATED)


class UpdateViewSet(VersionedViewSet[Row]):
    """Rows that can be read and changed; the serializer calls the service."""

    def partial_update(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        with transaction.atomic():
            row = self.asked_object()
            serializer = self.get_serializer(row, data=request.data, partial=True)
            serializer.is_valid(raise_exception=True)
            serializer.save()
        return self.row_response(row)


class EditViewSet(CreateViewSet[Row], UpdateViewSet[Row], DeleteViewSet[Row]):
    """Rows that can be created, changed and deleted, many at once too."""

    @action(detail=False, methods=["post"], pagination_class=None)
    def batch(self, request: Request) -> Response:
        """Delete, change and make many rows at once: all of it or, if any is refused, nothing."""
        asked = BatchSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        given, work = asked.validated_data, Batch()
        versions = given["if_match"]

        rows = self.filter_queryset(self.get_queryset())

        def found(pk: int) -> Row:
            row: Row = get_object_or_404(rows, pk=pk)
            self.check_object_permissions(request, row)
            self._check_version(row, versions.get(pk))
            return row

        def delete(pk: int, _: object) -> int:
            self.perform_destroy(found(pk))
            return pk

        def save(row: Row | None, content: Any) -> Row:
            serializer = self.get_serializer(row, data=content, partial=row is not None)
            serializer.is_valid(raise_exception=True)
            saved: Row = serializer.save()
            return saved

        with together(), transaction.atomic():
            deleted = list(work.each("delete", dict.fromkeys(given["delete"]), delete))
            updated = list(
                work.each("update", given["update"], lambda pk, item: save(found(pk), item))
            )
            created = list(
                work.each(
                    "create", dict(enumerate(given["create"])), lambda _, item: save(None, item)
                )
            )
            work.finish()
        return Response(
            {
                "deleted": deleted,
                "updated": self.get_serializer(updated, many=True).data,
                "created": self.get_serializer(created, many=True).data,
            }
        )
