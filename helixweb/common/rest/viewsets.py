"""Collections: lists and rows to read, to delete, and to edit."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, TypeVar

from django.db import models, transaction
from django.shortcuts import get_object_or_404
from django.utils import timezone
from django.utils.translation import get_language
from rest_framework import status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from helixweb.common.actor import together
from helixweb.common.pagination import Pages
from helixweb.common.rest.batches import Batch, BatchSerializer
from helixweb.common.rest.etags import check_if_match, edit_tag, tagged, tagged_list
from helixweb.common.rest.kept import ALWAYS, let_keep
from helixweb.common.rest.listing import EachTime, Listing, RowByRow, is_row_by_row
from helixweb.common.rest.lists import (
    FIELDS,
    NO_FILTERS,
    ORDERING,
    SEARCH,
    Filters,
    Ordering,
    Search,
    parameters_of_list,
    wanted_fields,
)
from helixweb.common.rest.rows import RowReader, reader_of
from helixweb.common.rest.views import RestMixin

Row = TypeVar("Row", bound=models.Model)


class ReadViewSet(RestMixin, viewsets.ReadOnlyModelViewSet[Row]):
    """A list and each row, with ETags."""

    filter_backends = (Filters, Search, Ordering)
    search_fields: ClassVar[tuple[str, ...]] = ()
    # Query parameters of actions beside the list and the row.
    action_parameters: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    # Fields of a row that change though nobody edits it.
    changing_by_itself: ClassVar[tuple[str, ...]] = ()
    # Whether a list hangs on the database, on who asks and for what, and on nothing else: then it
    # is the same until something is committed (see kept.py). No clock, no file, no other process.
    shows_rows_alone: ClassVar[bool] = False

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        listing = self._listing(request)
        response = Pages().of(listing, request)
        response.is_quick = isinstance(listing, RowByRow)  # type: ignore[attr-defined]  # handler.py
        let_keep(response, request, until=listing.until)
        return tagged_list(request, response)

    def _listing(self, request: Request) -> Listing:
        serializer: Any = self.get_serializer_class()
        zone = timezone.get_current_timezone_name()
        wanted = wanted_fields(request, serializer)
        reader = reader_of(serializer, wanted=wanted, utc=zone == "UTC")
        queryset: Any = type(self).queryset
        if not (self.knows_until() and is_row_by_row(queryset, reader)):
            rows = self.filter_queryset(self.get_queryset())
            return EachTime(rows, reader, self.same_until)
        is_plain = request.query_params.keys() <= NO_FILTERS
        return RowByRow(
            name=self._name_of_sql(request, reader) if is_plain else None,
            rows=lambda: self.filter_queryset(self.get_queryset()),
            reader=reader,
            context=(zone, get_language(), self.beside_rows()),
            until_of=self.same_until,
        )

    def _name_of_sql(self, request: Request, reader: RowReader) -> Hashable:
        """All that the SQL of a list hangs on that is not filtered; None: it is not known."""
        reads_as = getattr(request._request, "helix_reads_as", None)
        if reads_as is None:
            return None
        asked = [request.query_params.get(name) for name in (ORDERING, SEARCH)]
        return (type(self), tuple(self.kwargs.items()), reader, reads_as, *asked)

    @classmethod
    def knows_until(cls) -> bool:
        """Whether `same_until` can tell."""
        return cls.shows_rows_alone or cls.same_until is not ReadViewSet.same_until

    def beside_rows(self) -> Hashable:
        """Settings that rows are shown by, if any are."""
        return None

    def same_until(self, shown: Sequence[Mapping[str, Any]]) -> datetime | None:
        """Until when a list is as it is `shown` if nothing is committed; None: nobody knows."""
        return ALWAYS if self.shows_rows_alone else None

    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.row_response(self.get_object())

    def query_parameters(self) -> Iterable[str]:
        if self.action == "list":
            return parameters_of_list(self)
        return (
            (FIELDS,) if self.action == "retrieve" else self.action_parameters.get(self.action, ())
        )

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
        """Call the service that does; it tells of it."""


class EditViewSet(DeleteViewSet[Row]):
    """Rows that can be made, changed and deleted as well."""

    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        serializer = self.get_serializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        return self.row_response(serializer.save(), status=status.HTTP_201_CREATED)

    def partial_update(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        with transaction.atomic():
            row = self.asked_object()
            serializer = self.get_serializer(row, data=request.data, partial=True)
            serializer.is_valid(raise_exception=True)
            serializer.save()
        return self.row_response(row)

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
        shown: Any = self.get_serializer_class()
        read = reader_of(shown, utc=timezone.get_current_timezone_name() == "UTC").read
        return Response(
            {
                "deleted": deleted,
                "updated": [read(row) for row in updated],
                "created": [read(row) for row in created],
            }
        )
