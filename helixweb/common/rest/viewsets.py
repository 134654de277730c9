"""Collections: lists and rows to read, to delete, and to edit."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, TypeVar

from django.db import models, transaction
from django.shortcuts import get_object_or_404
from rest_framework import status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from helixweb.common.actor import together
from helixweb.common.queries import within
from helixweb.common.rest.batches import Batch, BatchSerializer
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

Row = TypeVar("Row", bound=models.Model)


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
