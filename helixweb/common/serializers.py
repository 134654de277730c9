"""A serializer that refuses what it does not know, and names rows that its reader may change."""

from typing import Any, TypeVar

from django.db.models import Model
from rest_framework import exceptions, serializers

from helixweb.common.queries import parsed_id, within

# At most so many unknown keys of a body are reported.
MOST_TOLD = 100
Row = TypeVar("Row", bound=Model)


def checked(kind: Any, request: Any, given: Any = None) -> dict[str, Any]:
    """Validated data of the request's body, or of `given`, by the serializer `kind`.

    Raises ValidationError.
    """
    asked = kind(data=request.data if given is None else given, context={"request": request})
    asked.is_valid(raise_exception=True)
    found: dict[str, Any] = asked.validated_data
    return found


class ShownOnce(serializers.CharField):
    """A secret that a row has as an attribute when it was created just now; null for other rows."""

    def __init__(self, **options: Any) -> None:
        super().__init__(read_only=True, allow_null=True, default=None, **options)

    def get_attribute(self, instance: Any) -> Any:
        return super().get_attribute(instance) or None


class CreatedBy(serializers.CharField):
    """The name of the user who created a row; null: the site did, or the user was deleted."""

    def __init__(self) -> None:
        super().__init__(
            source="created_by.username", default=None, read_only=True, allow_null=True
        )


# No docstring: the OpenAPI document would give it to each that has none. All columns are read-only.
class ShownSerializer(serializers.ModelSerializer[Row]):
    def get_extra_kwargs(self) -> dict[str, Any]:
        given = super().get_extra_kwargs()
        return {name: {**given.get(name, {}), "read_only": True} for name in self.Meta.fields}


class RowKey(serializers.PrimaryKeyRelatedField):  # type: ignore[type-arg]
    """The id of a row in the scope of the request that is in the serializer's context."""

    def get_queryset(self) -> Any:
        return within(super().get_queryset(), self.context["request"])

    def to_internal_value(self, data: Any) -> Any:
        """The row of a key. Raises PermissionDenied if the user may see but not change it."""
        is_other = isinstance(data, str) and parsed_id(data) is None
        if is_other or isinstance(data, float):  # Django looks for int(data)
            self.fail("incorrect_type", data_type=type(data).__name__)
        try:
            return super().to_internal_value(data)
        except exceptions.ValidationError:
            rows: Any = super().get_queryset()
            if isinstance(data, int | str) and hasattr(rows, "within"):
                seen = rows.within(self.context["request"], "viewer")
                if parsed_id(str(data)) and seen.filter(pk=data).exists():
                    raise exceptions.PermissionDenied(
                        f"You may see row {data}, but not do this on its cluster; ask an "
                        "administrator for a role there."
                    ) from None
            raise


class StrictFieldsMixin:
    """Unknown keys are an error that names them, never silently ignored."""

    serializer_related_field: Any = RowKey

    def build_standard_field(self, field_name: str, model_field: Any) -> Any:
        made, options = super().build_standard_field(field_name, model_field)  # type: ignore[misc]
        _compare_with_all(options.get("validators", ()))
        return made, options

    def get_validators(self) -> Any:
        found = super().get_validators()  # type: ignore[misc]
        _compare_with_all(found)
        return found

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, dict):
            fields = self.fields  # type: ignore[attr-defined]
            unknown = sorted(set(data) - set(fields))[:MOST_TOLD]
            if unknown:
                known = ", ".join(name for name, field in fields.items() if not field.read_only)
                raise serializers.ValidationError(
                    {name: [f"Unknown field; the known ones are: {known}."] for name in unknown}
                )
            # DRF takes the keys of an object for what it names.
            for name, value in data.items():
                if isinstance(fields[name], serializers.ManyRelatedField) and isinstance(
                    value, dict
                ):
                    raise serializers.ValidationError({name: ["Give a list, not an object."]})
        return super().to_internal_value(data)  # type: ignore[misc]


def _compare_with_all(validators: Any) -> None:
    """Make validators of uniqueness compare with rows of all clusters."""
    for one in validators:
        if hasattr(one, "queryset"):
            one.queryset = one.queryset.model._base_manager
