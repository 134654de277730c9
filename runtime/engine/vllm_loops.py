"""How a call of a vLLM model is bound to some of its layers."""

from collections.abc import Collection
from typing import Any

from torch import nn
from vllm.model_executor.models.transformers import TransformersForCausalLM
from vllm.model_executor.models.utils import PPMissingLayer


class NativeLoop:
    """A module of vLLM's that loops over its layers from `start_layer` to `end_layer`."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def enter(self, layers: range, *, is_last: bool) -> None:
        """Before each forward: the layers it runs, and whether the last norm follows."""
        self._inner.start_layer, self._inner.end_layer = layers.start, layers.stop

    @property
    def layers(self) -> list[nn.Module]:
        return [*self._stack]

    def drop(self, layers: Collection[int]) -> None:
        """They are not run again."""
        for layer in layers:
            self._stack[layer] = PPMissingLayer()

    @property
    def _stack(self) -> Any:
        return next(each for each in self._inner.children() if isinstance(each, nn.ModuleList))


class ModuleLoop:
    """A decoder of `transformers` within vLLM, which loops over all that is in its list of layers.

    Layers that a call leaves out, and the norm behind them, give way to a module that does nothing.
    """

    def __init__(self, decoder: nn.Module) -> None:
        children = list(decoder.named_children())
        at = next(at for at, (_, each) in enumerate(children) if isinstance(each, nn.ModuleList))
        self._decoder = decoder
        self._slots: Any = children[at][1]
        self._layers: list[nn.Module] = list(self._slots.children())
        self._behind = {
            name: module
            for name, module in children[at + 1 :]
            if next(module.parameters(), None) is not None
        }
        self._nothing = PPMissingLayer()

    def enter(self, layers: range, *, is_last: bool) -> None:
        """Before each forward: the layers it runs, and whether the last norm follows."""
        for at, layer in enumerate(self._layers):
            wanted = layer if at in layers else self._nothing
            if self._slots[at] is not wanted:
                self._slots[at] = wanted
        for name, module in self._behind.items():
            setattr(self._decoder, name, module if is_last else self._nothing)

    @property
    def layers(self) -> list[nn.Module]:
        return [*self._layers]

    def drop(self, layers: Collection[int]) -> None:
        """They are not run again."""
        for layer in layers:
            self._layers[layer] = self._slots[layer] = self._nothing


Loop = NativeLoop | ModuleLoop


def layer_loop(model: nn.Module) -> Loop | None:
    """What loops over the layers of a model; None if it has no loop that a call can bind."""
    if isinstance(model, TransformersForCausalLM):
        return ModuleLoop(model.model.get_decoder())
    inner = next((each for each in model.modules() if hasattr(each, "start_layer")), None)
    return None if inner is None else NativeLoop(inner)
