"""What numbers and names a problem may contain, declared at the fields that have them.

The largest numbers are each far beyond any machine of today. Together they keep flows within 63
bits, tables of step times within a few MB, and every quotient finite.
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

from planner.domain.errors import InvalidProblem

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
    """Of the numbers of a field: `Annotated[float, Range(0, MAX_SECONDS)]`; of each, if several.

    `above`: they must be greater than `least`.
    """

    least: float
    most: float = math.inf
    above: bool = False

    def check(self, where: str, value: float) -> None:
        """Raises InvalidProblem with `where`, the value and the limit."""
        if self.above and not value > self.least:
            raise InvalidProblem(f"{where} is {value:g}; it must be greater than {self.least:g}")
        if not value >= self.least:
            more = "more" if isinstance(value, int) else "greater"
            raise InvalidProblem(f"{where} is {value:g}; it must be {self.least:g} or {more}")
        if not value <= self.most:
            raise InvalidProblem(f"{where} is {value:g}; it must be at most {self.most:g}")


@dataclass(frozen=True, slots=True)
class NotBlank:
    """Of a text that must say something."""

    def check(self, where: str, value: str) -> None:
        if not value.strip():
            raise InvalidProblem(f"{where} is {value!r}; give it a name")


@dataclass(frozen=True, slots=True)
class OneOf:
    """Of a field that is a Literal."""

    choices: tuple[str, ...]

    def check(self, where: str, value: str) -> None:
        if value not in self.choices:
            raise InvalidProblem(f"{where} is {value!r}; use one of: {', '.join(self.choices)}")


POSITIVE = Range(0, above=True)
Name: TypeAlias = Annotated[str, NotBlank()]
Count: TypeAlias = Annotated[int, Range(1, MAX_COUNT)]
Seconds: TypeAlias = Annotated[float, Range(0, MAX_SECONDS)]
BytesPerS: TypeAlias = Annotated[float, Range(0, MAX_BYTES_PER_S, above=True)]
Price: TypeAlias = Annotated[float, Range(0, MAX_PRICE, above=True)]


def check_fields(record: "DataclassInstance", where: str = "") -> None:
    """Raises InvalidProblem for a field beyond what its type declares; `where` begins its name."""
    for name, limit in _limits_of(type(record)):
        value = getattr(record, name)
        if isinstance(value, tuple):
            for layers, one in enumerate(value, start=1):
                limit.check(f"{where}{name} for {layers} layers", one)
        elif value is not None:
            limit.check(f"{where}{name}", value)


@functools.cache
def _limits_of(kind: "type[DataclassInstance]") -> tuple[tuple[str, Any], ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple((one.name, limit) for one in fields(kind) for limit in limits_of(hints[one.name]))


def limits_of(hint: object) -> "Iterator[Range | NotBlank | OneOf]":
    """What a type declares of its values, one or several, None aside."""
    if get_origin(hint) is Literal:
        yield OneOf(get_args(hint))
    elif get_origin(hint) is Annotated:
        yield from (one for one in get_args(hint) if isinstance(one, Range | NotBlank))
    elif get_origin(hint) in (Union, UnionType, tuple):
        for one in get_args(hint):
            yield from limits_of(one)
