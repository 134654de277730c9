"""Columns that several models have, their lengths, and which columns people write."""

from typing import TYPE_CHECKING, Any

from django.db import models

from helixweb.inventory.validators import validate_name

if TYPE_CHECKING:
    from helixweb.inventory.models import Cluster

NAME_LENGTH = 64
MAX_MACHINES = 1000  # of one join token
PROFILE_NAME_LENGTH = 120
VERSION_LENGTH = 64
TAG_LENGTH = 32


def columns_of(model: type[models.Model]) -> tuple[str, ...]:
    """The columns that people write, in the model's order: those of REST, forms and files.

    A model names in `not_by_people` what processes write.
    """
    others = getattr(model, "not_by_people", ())
    return tuple(
        field.name
        for field in model._meta.concrete_fields
        if field.editable
        and not (field.primary_key or field.is_relation)
        and field.name not in others
    )


def name_column(**options: Any) -> "models.CharField[str, str]":
    """A column for a name: no blanks at its ends, no control characters."""
    return models.CharField(max_length=NAME_LENGTH, validators=[validate_name], **options)


def cluster_key(rows: str) -> "models.ForeignKey[Cluster, Cluster]":
    """The cluster that a row belongs to and goes with; its `rows` are called so."""
    return models.ForeignKey("inventory.Cluster", models.CASCADE, related_name=rows)


def unique(name: str, *fields: str, among: models.Q | None = None) -> models.UniqueConstraint:
    """No two rows, or of those `among` them, are alike in these fields."""
    return models.UniqueConstraint(fields=fields, condition=among, name=name)
