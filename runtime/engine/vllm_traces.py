"""Layers of vLLM's models as plain lists of operations, without the modules around them.

On a CPU the Python of a layer's modules takes a tenth of a decode step. torch's compiler traces a
layer once for all layers like it; what it traced is called with each layer's own weights. The
operations stay the same, and no code is generated: that would take a C++ compiler and a minute.

Models are traced that vLLM marks for its compiler. As vLLM does, the trace is used for any number
of rows, and its assumptions about a layer are checked once, not in every step.

Legend: T rows.
"""

import logging
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._dynamo.exc import FailOnRecompileLimitHit, TorchDynamoException
from torch.fx import GraphModule
from vllm.compilation.wrapper import TorchCompileWithNoGuardsWrapper
from vllm.model_executor.layers.attention import attention

logger = logging.getLogger(__name__)

Forward = Callable[..., Any]
# for a few rows torch takes longer to dispatch these than they take
_DIRECT = {
    torch.ops.vllm.unified_kv_cache_update: attention.unified_kv_cache_update,
    torch.ops.vllm.unified_attention_with_output: attention.unified_attention_with_output,
}


def trace_layers(model: nn.Module, layers: Sequence[nn.Module], run: Callable[[], object]) -> None:
    """Trace `layers` of `model` while `run` runs all of them once, and use the traces from then on.

    Layers that cannot be traced stay as they are.
    """
    if not any(isinstance(module, TorchCompileWithNoGuardsWrapper) for module in model.modules()):
        return
    traced: dict[nn.Module, Forward] = {}
    called: list[tuple[GraphModule, Sequence[Any], Sequence[Any]]] = []

    def record(graph: GraphModule, _: object) -> Forward:
        for node in graph.graph.nodes:
            node.target = _DIRECT.get(node.target, node.target)
        graph.recompile()

        def call(*inputs: Any) -> Any:
            outputs = graph.forward(*inputs)
            called.append((graph, inputs, outputs))
            return outputs

        return call

    traceable = torch.compile(_run_layer, fullgraph=True, dynamic=False, backend=record)

    def tracing(layer: nn.Module) -> Forward:
        def forward(*args: Any, **named: Any) -> Any:
            called.clear()
            for value in (*args, *named.values()):
                if isinstance(value, Tensor):
                    torch._dynamo.mark_dynamic(value, 0)
            results = traceable(layer, args, named)
            if len(called) == 1:
                graph, inputs, outputs = called[0]
                found = _bound(layer, graph, inputs, outputs, args, named, results)
                traced.update({} if found is None else {layer: found})
            return results

        return forward

    try:
        for layer in layers:
            layer.forward = tracing(layer)
        with torch.inference_mode():
            run()
    except (TorchDynamoException, FailOnRecompileLimitHit):
        traced.clear()
        logger.info("what keeps layers from being traced", exc_info=True)
    finally:
        torch.compiler.reset()  # it would take these traces for those of other models
        called.clear()
        for layer in layers:
            del layer.forward
    for layer, forward in traced.items():
        layer.forward = forward
    logger.info("%d of %d layers run without their modules", len(traced), len(layers))


def _run_layer(layer: Any, args: Sequence[Any], named: dict[str, Any]) -> Any:
    return type(layer).forward(layer, *args, **named)


def _bound(
    layer: nn.Module,
    graph: GraphModule,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    args: Sequence[Any],
    named: dict[str, Any],
    results: Any,
) -> Forward | None:
    """`graph` with the weights of `layer`, as the layer's forward; None if what it needs is more.

    `inputs` and `outputs` are the graph's in a call in which the layer gave `results`. Inputs are
    arguments of the layer, the number of rows T, or stay the same in all calls.
    """
    values = (*args, *named.values())
    types, names = [type(value) for value in values], [*named]
    rows = {len(value) for value in values if isinstance(value, Tensor)}
    counts = [place for place, given in enumerate(inputs) if isinstance(given, int)]
    arguments = {
        place: index
        for place, given in enumerate(inputs)
        for index, value in enumerate(values)
        if given is value
    }
    known = [id(each) for each in (*outputs, *values, None)]
    left = [id(each) for each in ([results] if isinstance(results, Tensor) else results)]
    if (
        len(rows) != 1
        or {inputs[place] for place in counts} - rows
        or not set(types) <= {Tensor, type(None)}
        or not set(left) <= set(known)
    ):
        return None
    left_places = [known.index(each) for each in left]
    first_tensor = types.index(Tensor)
    kept = [None if place in arguments else given for place, given in enumerate(inputs)]
    call, is_single = graph.forward, isinstance(results, Tensor)
    itself = weakref.ref(layer)  # which has this, and frees its weights when it goes

    def forward(*args: Any, **named: Any) -> Any:
        values = (*args, *named.values())
        if [type(value) for value in values] != types or [*named] != names:
            return _run_layer(itself(), args, named)
        given = kept.copy()
        for place, index in arguments.items():
            given[place] = values[index]
        for place in counts:
            given[place] = values[first_tensor].shape[0]
        known = (*call(*given), *values, None)
        return known[left_places[0]] if is_single else tuple(known[place] for place in left_places)

    return forward
