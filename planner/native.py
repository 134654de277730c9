"""The planner's inner loops: C in `loops/`, built by `setup.py` into one library, called by ctypes.

Each function is declared by `function` in the module that calls it. A build without a C compiler
brings one along (docs/decisions/0003-loops-in-c.md).
"""

import ctypes
import functools
from collections.abc import Callable, Collection, Iterator
from dataclasses import fields, is_dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

I64, REAL, POINTER = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p
# Arrays that C can read as they lie in memory; ctypes refuses others.
INTEGERS = np.ctypeslib.ndpointer(np.int64, flags="C")
REALS = np.ctypeslib.ndpointer(np.float64, flags="C")
Field: TypeAlias = "int | float | npt.NDArray[np.int64] | npt.NDArray[np.float64]"

_EDITION = 25  # that of loops/module.c


class Packed:
    """A C struct of 8-byte fields, which keeps the arrays that it points to.

    An int is an int64_t, a float a double, an array a pointer to its numbers. Fields are in the
    order of the C declaration.
    """

    def __init__(self, **fields: Field) -> None:
        """Raises TypeError for an array that C cannot read as it lies in memory."""
        self._arrays = [value for value in fields.values() if isinstance(value, np.ndarray)]
        declared = tuple((name, _type_of(name, value)) for name, value in fields.items())
        self._struct: ctypes.Structure = _struct_of(declared)(
            *(
                value.ctypes.data if isinstance(value, np.ndarray) else value
                for value in fields.values()
            )
        )

    @classmethod
    def of(cls, record: "DataclassInstance", *, without: Collection[str] = ()) -> "Packed":
        """A dataclass' numbers in the order of its fields, those of other dataclasses in place.

        An array, or a tuple of int, is followed by its shape.
        """
        numbers = _numbers_of(record, "", without=without)
        return cls(**dict(numbers))

    @property
    def address(self) -> int:
        return ctypes.addressof(self._struct)

    @property
    def _as_parameter_(self) -> int:
        """What ctypes passes where a pointer is declared."""
        return self.address

    def value(self, name: str) -> int | float:
        """The field as it is now."""
        read: int | float = getattr(self._struct, name)
        return read


@functools.lru_cache(maxsize=64)
def _struct_of(declared: tuple[tuple[str, type], ...]) -> type[ctypes.Structure]:
    return type("_Struct", (ctypes.Structure,), {"_fields_": list(declared)})


def _numbers_of(
    record: "DataclassInstance", within: str, *, without: Collection[str] = ()
) -> Iterator[tuple[str, Field]]:
    for one in fields(record):
        if one.name in without:
            continue
        name, value = f"{within}{one.name}", getattr(record, one.name)
        if is_dataclass(value) and not isinstance(value, type):
            yield from _numbers_of(value, f"{name}.")
        elif isinstance(value, tuple | np.ndarray):
            array = np.array(value, dtype=np.int64) if isinstance(value, tuple) else value
            yield name, np.ascontiguousarray(array)
            yield from ((f"{name}.{axis}", size) for axis, size in enumerate(array.shape))
        else:
            yield name, float(value) if one.type is float else int(value)


def _type_of(name: str, value: Field) -> type:
    if isinstance(value, np.ndarray):
        if value.dtype not in (np.int64, np.float64) or not value.flags.c_contiguous:
            raise TypeError(
                f"{name} is {value.dtype} or has gaps; C reads contiguous 8-byte numbers"
            )
        return POINTER
    return I64 if isinstance(value, int) else REAL


def function(name: str, result: type | None, *arguments: Any) -> Callable[..., Any]:
    """The loops' function of that name, looked up when it is called first.

    A call raises ImportError where the loops were not built, or from other sources than these.
    """

    @functools.cache
    def found() -> Any:
        declared = getattr(_library(), name)
        declared.restype, declared.argtypes = result, arguments
        return declared

    return lambda *values: found()(*values)


@functools.cache
def _library() -> ctypes.CDLL:
    paths = [Path(__file__).with_name(f"_loops{suffix}") for suffix in EXTENSION_SUFFIXES]
    built = next((path for path in paths if path.exists()), None)
    library = None if built is None else ctypes.CDLL(str(built))
    if library is None or I64.in_dll(library, "loops_edition").value != _EDITION:
        found = "missing" if built is None else f"{built} is of other sources"
        raise ImportError(
            f"the planner's loops are not built: {found}; install a C compiler such as gcc, then "
            "install HelixWeb again, or in a checkout run: python setup.py build_ext --inplace"
        )
    return library
