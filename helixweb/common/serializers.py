"""A serializer that refuses what it does not know."""

from typing import Any

from rest_framework import serializers

# Of a body with more unknown keys these are told.
MOST_TOLD = 100


class StrictFieldsMixin:
    """Unknown keys are an error that names them, never silently ignored."""

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
