"""Counts what passes between host and device, with `meta` as a device that has no memory.

A tensor on `meta` has a shape and no numbers, so whatever needs its numbers on the host is seen: by
itself torch would raise. Such reads are answered with ones.
"""

from collections.abc import Callable, Iterable
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

META, CPU = torch.device("meta"), torch.device("cpu")
_READS = {
    "aten::_local_scalar_dense",
    "aten::item",
    "aten::equal",
    "aten::nonzero",
    "aten::is_nonzero",
}
# a number of these may be on the host: it is handed to the kernel as an argument
_TAKES_NUMBERS = {
    f"aten::{name}"
    for name in (
        "add", "add_", "sub", "sub_", "mul", "mul_", "div", "div_", "eq", "ne", "lt", "le", "gt",
        "ge", "maximum", "minimum", "bitwise_and", "bitwise_or", "pow",
    )
}  # fmt: skip


class Crossings(TorchDispatchMode):
    """What crossed while it was active, in order: "to the device" or "to the host", and by what."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, str]] = []
        self._outside = _Outside(lambda name: self._note(META, f"{name} of numbers"))

    def __enter__(self) -> Self:
        self._outside.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._outside.__exit__(*error)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name
        given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        if all(each.device == CPU for each in given) and kwargs.get("device") != META:
            return func(*args, **kwargs)
        if name in ("aten::_to_copy", "aten::to"):  # the latter in inference mode
            return self._copied(func, args, kwargs)
        if name == "aten::copy_" and args[0].device != args[1].device:
            self._note(args[0].device, name)
            return args[0] if args[0].device == META else args[0].fill_(1)
        if name in _READS:
            self._note(CPU, name)
            return True if name == "aten::equal" else 1
        if _is_indexed_by_mask(name, args):
            self._note(CPU, f"{name} by a mask, whose size the host has to know")
            return args[0]
        if any(
            each.device == CPU and not (each.dim() == 0 and name in _TAKES_NUMBERS)
            for each in given
        ):
            self._note(META, f"{name} of a tensor on the host")
            return torch.empty_like(next(each for each in given if each.device == META))
        return func(*args, **kwargs)

    def _copied(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        source, target = args[0].device, torch.device(kwargs.get("device") or args[0].device)
        if source == target:
            return func(*args, **kwargs)
        self._note(target, "aten::_to_copy")
        if target == META:
            return func(*args, **kwargs)
        return torch.ones(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype)

    def _note(self, target: torch.device, name: str) -> None:
        self.seen.append(("to the device" if target == META else "to the host", name))


class _Outside(TorchFunctionMode):
    """Calls `note` where torch copies numbers to the device out of sight of its dispatcher."""

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__()
        self._note = note

    def __torch_function__(
        self,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in ("__getitem__", "__setitem__") and args[0].device == META:
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            if any(isinstance(each, (list, np.ndarray)) for each in index):
                self._note(name)
        elif name in ("tensor", "as_tensor") and torch.device(kwargs.get("device") or CPU) == META:
            self._note(name)
        return func(*args, **kwargs)


def _is_indexed_by_mask(name: str, args: tuple[Any, ...]) -> bool:
    if name not in ("aten::index", "aten::index_put", "aten::index_put_"):
        return False
    return any(each is not None and each.dtype == torch.bool for each in args[1])
