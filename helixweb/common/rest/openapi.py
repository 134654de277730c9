"""What the OpenAPI document says of every operation by itself: headers that all rows know."""

from typing import Any

from drf_spectacular.extensions import OpenApiSerializerExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter

import helixweb.common.schema  # noqa: F401 - registers the scheme of API keys
from helixweb.common.rest import idempotency
from helixweb.common.rest.batches import documented_batch
from helixweb.common.rest.lists import FIELDS, shown_fields
from helixweb.common.rest.negotiation import ByAccept
from helixweb.common.rest.views import RestMixin
from helixweb.common.rest.viewsets import EditViewSet, ReadViewSet, VersionedViewSet

IF_NONE_MATCH = OpenApiParameter(
    "If-None-Match",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description="An ETag that the client has: the answer is 304 if what is there is still that.",
)
IF_MATCH = OpenApiParameter(
    "If-Match",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description="The ETag of what was read: the answer is 412, and nothing is done, if somebody "
    "has edited the row since.",
)
ETAG = OpenApiParameter(
    "ETag",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description="Which version of the row this is, for If-None-Match and If-Match.",
    response=[200, 201],
)
ETAG_OF_LIST = OpenApiParameter(
    "ETag",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description="Which version of the list this is, for If-None-Match.",
    response=[200],
)


IDEMPOTENCY_KEY = OpenApiParameter(
    idempotency.HEADER,
    {"type": "string", "maxLength": idempotency.MAX_KEY_LENGTH, "pattern": "^[!-~]+$"},
    OpenApiParameter.HEADER,
    description="Any text of your own, such as a UUID. Whoever sends the same request with the "
    "same key again within 24 hours gets the same answer, and nothing is done twice.",
)
REPLAYED = OpenApiParameter(
    idempotency.REPLAYED,
    {"type": "string", "enum": ["true"]},
    OpenApiParameter.HEADER,
    description="The answer is that of the first request with this Idempotency-Key.",
    response=[200, 201, 202],
)
LOCATION = OpenApiParameter(
    "Location",
    OpenApiTypes.URI,
    OpenApiParameter.HEADER,
    description="Where to look how far it is.",
    response=[202],
)


class StrictFields(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]
    """What refuses unknown fields says so."""

    target_class = "helixweb.common.serializers.StrictFieldsMixin"
    match_subclasses = True

    def map_serializer(self, auto_schema: AutoSchema, direction: Any) -> dict[str, Any]:
        plain: Any = auto_schema._map_serializer
        schema: dict[str, Any] = plain(self.target, direction, bypass_extensions=True)
        return schema | {"additionalProperties": False} if direction == "request" else schema


class RestSchema(AutoSchema):
    """drf-spectacular's, and the headers that the view's base class understands."""

    def get_override_parameters(self) -> list[Any]:
        view, action = self.view, getattr(self.view, "action", None)
        parameters = list(super().get_override_parameters())
        if isinstance(view, ReadViewSet) and action in ("list", "retrieve"):
            serializer: Any = view.get_serializer_class()
            parameters.append(_fields(shown_fields(serializer)))
        if isinstance(view, ReadViewSet) and action == "list":
            parameters += [IF_NONE_MATCH, ETAG_OF_LIST]
        if isinstance(view, ReadViewSet) and action == "retrieve":
            parameters += [IF_NONE_MATCH, ETAG]
        if isinstance(view, VersionedViewSet) and action in ("destroy", "partial_update"):
            parameters.append(IF_MATCH)
        if isinstance(view, EditViewSet) and action in ("create", "partial_update"):
            parameters.append(ETAG)
        if isinstance(view, RestMixin) and self.method == "POST":
            parameters += [IDEMPOTENCY_KEY, REPLAYED, LOCATION]
        return parameters

    def _get_format_parameters(self) -> list[Any]:
        """`?format=`, where it is not refused."""
        if isinstance(self.view, RestMixin) and self.view.content_negotiation_class is ByAccept:
            return []
        found: list[Any] = super()._get_format_parameters()
        return found

    def _insert_field_validators(self, field: Any, schema: dict[str, Any]) -> None:
        """Those of our own validators too, where they say how JSON Schema puts it."""
        super()._insert_field_validators(field, schema)  # type: ignore[no-untyped-call]
        for validator in getattr(field, "validators", ()):
            schema.update(getattr(validator, "in_schema", {}))

    def get_request_serializer(self) -> Any:
        batch = self._batch()
        return super().get_request_serializer() if batch is None else batch[0]

    def get_response_serializers(self) -> Any:
        batch = self._batch()
        return super().get_response_serializers() if batch is None else batch[1]

    def _batch(self) -> tuple[Any, Any] | None:
        """The serializers of a batch of this collection's rows; None: this is none."""
        if not isinstance(self.view, EditViewSet) or self.view.action != "batch":
            return None
        serializer: Any = self.view.get_serializer_class()
        return documented_batch(serializer)


def _fields(names: tuple[str, ...]) -> OpenApiParameter:
    return OpenApiParameter(
        FIELDS,
        OpenApiTypes.STR,
        many=True,
        enum=names,
        explode=False,
        style="form",
        description="Show these fields of each row only; the others are left out.",
    )
