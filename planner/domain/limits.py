"""Limits of a problem's numbers and names, declared at their fields.

The limits are far beyond any machine of today. Together they keep flows within 63 bits, tables of
step times within a few MB, and every quotient finite.
"""

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from planner.domain.errors import InvalidProblem, PlannerError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MAX_LAYERS = 10_000
MAX_BYTES = 1e15
MIN_BYTES_PER_TOKEN = 1e-3
MAX_BYTES_PER_S = 1e15
MAX_SECONDS = 3600.0
# Of a layer with a large batch; estimates extend the slowest profiles to 1 000 tokens in a step.
MAX_LAYER_SECONDS = 1e9
MAX_TOKENS_PER_S = 1e9
# Of all nodes together: capacities are multiples of 2**-30 tokens/s in 63 bits.
MAX_CLUSTER_TOKENS_PER_S = 2.0**32
# Step times are tabulated by whole tokens, up to the last measured point.
MAX_BATCH_TOKENS = 2**18
MAX_MEAN_TOKENS = 1e9
MIN_TOKENS = 1e-3
MAX_TOKEN_LAYERS = 1e15
MAX_COUNT = 10**9
MAX_GPUS = 1024
MAX_PRICE = 1e12


@dataclass(frozen=True, slots=True)
class Range:
    """Range of a field's numbers: `Annotated[float, Range(0, MAX_SECONDS)]`; of each, if several.

    They are finite. `above`: they must be greater than `least`.
    """

    least: float
    most: float = math.inf
    above: bool = False

    def remedy(self, value: float) -> str:
        """The remedy for a wrong value; "" if it is valid."""
        if self.least < value <= self.most and value < math.inf:  # nearly always
            return ""
        if self.above and not value > self.least:
            return f"it must be greater than {self.least:g}"
        if not value >= self.least:
            return f"it must be {self.least:g} or {'more' if isinstance(value, int) else 'greater'}"
        if not value <= self.most:
            return f"it must be at most {self.most:g}"
        return "" if value < math.inf else "it must be finite"


@dataclass(frozen=True, slots=True)
class NotBlank:
    """A text must not be blank."""

    def remedy(self, value: str) -> str:
        return "" if value.strip() else "give it a name"


@dataclass(frozen=True, slots=True)
class OneOf:
    """A value must be one of a Literal's."""

    choices: tuple[str, ...]

    def remedy(self, value: str) -> str:
        return "" if value in self.choices else f"use one of: {', '.join(self.choices)}"


Limit: TypeAlias = Range | NotBlank | OneOf
POSITIVE = Range(0, above=True)
Name: TypeAlias = Annotated[str, NotBlank()]
Count: TypeAlias = Annotated[int, Range(1, MAX_COUNT)]
Seconds: TypeAlias = Annotated[float, Range(0, MAX_SECONDS)]
BytesPerS: TypeAlias = Annotated[float, Range(0, MAX_BYTES_PER_S, above=True)]
Price: TypeAlias = Annotated[float, Range(0, MAX_PRICE, above=True)]


def check(
    where: str, value: Any, limit: Limit, *, error: type[PlannerError] = InvalidProblem
) -> None:
    """Raise the error with `where`, the value and the remedy unless the value is valid."""
    remedy = limit.remedy(value)
    if remedy:
        shown = repr(value) if isinstance(value, str) else f"{value:g}"
        raise error(f"{where} is {shown}; {remedy}")


def check_fields(
    record: "DataclassInstance", where: str = "", *, error: type[PlannerError] = InvalidProblem
) -> None:
    """Raise the error for a field outside its declared limits; `where` begins its name."""
    for name, limit in _limits_of(type(record)):
        value = getattr(record, name)
        if isinstance(value, tuple):
            for layers, one in enumerate(value, start=1):
                if limit.remedy(one):
                    check(f"{where}{name} for {layers} layers", one, limit, error=error)
        elif value is not None and limit.remedy(value):
            check(f"{where}{name}", value, limit, error=error)


@functools.cache
def _limits_of(kind: "type[DataclassInstance]") -> tuple[tuple[str, Limit], ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple((one.name, limit) for one in fields(kind) for limit in limits_of(hints[one.name]))


def limits_of(hint: object) -> Iterator[Limit]:
    """Limits that a type declares for its values, one or several, except None."""
    if get_origin(hint) is Literal:
        yield OneOf(get_args(hint))
    elif get_origin(hint) in (Annotated, Union, UnionType, tuple):
        for one in get_args(hint):
            if isinstance(one, Range | NotBlank):
                yield one
            else:
                yield from limits_of(one)
