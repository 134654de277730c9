"""Bulk edits: create, change and delete many rows of a collection, all or nothing.

The errors of every item are reported, not only those of the first.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from django.db import models, transaction
from django.http import Http404
from rest_framework import exceptions, serializers

from helixweb.common.refusals import Refused
from helixweb.common.serializers import StrictFieldsMixin
from planner import PlannerError

MAX_ITEMS = 500
_TEXT_OF_404 = "There is no such row."


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
