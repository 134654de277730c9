"""All that is measured on a GPU, in one call of a few minutes.

    PYTHONPATH=. python benchmarks/gpu/run_all.py [--parameters FILE.toml]

1. Equality: a small checkpoint's greedy tokens, by pages and recorded decodes, against the same
   model on the CPU, in float32 (which gathers pages) and by logits in bfloat16.
2. Decode at a batch of 1 and 32: bytes of weights and of keys and values read per second, as a
   share of the copy bandwidth measured here.
3. Prefill: operations per second, as a share of the matrix product's rate measured here.

Prints JSON. Needs a GPU; says so and ends with status 2 without one.
"""

import argparse
import json
import statistics
import sys
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from runtime.engine.grammar import Grammars
from runtime.engine.kv_cache import KvCache
from runtime.engine.limits import EngineLimits
from runtime.engine.loading import make_runner
from runtime.engine.model_backend import ModelBackend
from runtime.engine.model_runner import ModelRunner
from runtime.engine.sequence import Chunk, RequestKey, Sequence, Work
from runtime.models.config import ModelConfig, read_config
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.models.weights import load_decoder
from runtime.protocol.data import Hop, Route, Sampling

HERE = Path(__file__).parent
PAGE_TOKENS = 16
SAMPLING = Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=10_000)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parameters", type=Path, default=HERE / "parameters.toml")
    parameters = tomllib.loads(parser.parse_args().parameters.read_text())
    if not torch.cuda.is_available():
        print("no GPU is here; nothing was measured", file=sys.stderr)
        return 2
    found: dict[str, Any] = {"gpu": torch.cuda.get_device_name(0), "torch": torch.__version__}
    with tempfile.TemporaryDirectory(prefix="gpu-") as folder:
        found["equality"] = _equality(Path(folder) / "small", parameters["small"])
        copy, product = _copy_bytes_per_s(), _product_flop_per_s()
        found["copy_bytes_per_s"], found["product_flop_per_s"] = copy, product
        large = Path(folder) / "large"
        make_tiny_checkpoint(large, sizes=TinySizes(**parameters["large"]), seed=1)
        found |= _speeds(large, parameters["speed"], copy=copy, product=product)
    print(json.dumps(found, indent=1))
    return 0


def _equality(checkpoint: Path, sizes: dict[str, Any]) -> dict[str, Any]:
    """Tokens of the same prompts on both devices, and how far the logits are apart."""
    result: dict[str, Any] = {}
    for dtype in ("float32", "bfloat16"):
        directory = checkpoint.with_name(f"{checkpoint.name}-{dtype}")
        make_tiny_checkpoint(directory, sizes=TinySizes(**sizes, dtype=dtype), seed=2)
        tokens, logits = {}, {}
        for device in ("cpu", "cuda"):
            config, backend, runner = _open(directory, device, pages=4000)
            sequences = [_sequence(number, config.num_layers) for number in range(5)]
            prompt = np.random.default_rng(0).integers(4, config.vocab_size, 40, dtype="<i4")
            step = _work(backend, sequences, prompt, position=0)
            hidden_TD = runner.forward(step)
            logits[device] = runner.logits(hidden_TD[39::40]).float().cpu()
            last = logits[device].argmax(-1).tolist()
            tokens[device] = [last]
            for position in range(40, 72):
                drawn = backend.run(_work(backend, sequences, last, position=position)).drawn
                last = [drawn[index].token_id for index in range(len(sequences))]
                tokens[device].append(last)
        result[dtype] = {
            "tokens_equal": tokens["cpu"] == tokens["cuda"],
            "logits_apart": float((logits["cpu"] - logits["cuda"]).abs().max()),
            "largest_logit": float(logits["cpu"].abs().max()),
        }
    return result


def _speeds(
    checkpoint: Path, told: dict[str, Any], *, copy: float, product: float
) -> dict[str, Any]:
    context, blocks = told["context_tokens"], -(-(told["context_tokens"] + 64) // PAGE_TOKENS)
    config = read_config(checkpoint)
    most = max(told["decode_batches"])
    config, backend, runner = _open(checkpoint, "cuda", pages=most * blocks * config.num_layers)
    found: dict[str, Any] = {}
    for batch in told["decode_batches"]:
        sequences = [_sequence(number, config.num_layers) for number in range(batch)]
        step = _work(backend, sequences, [7] * batch, position=context)
        seconds = _median_s(lambda step=step: backend.run(step))
        kv_bytes = 2 * context * config.kv_size * config.dtype.itemsize * config.num_layers * batch
        rate = (runner.weights_bytes + kv_bytes) / seconds
        found[f"decode_{batch}"] = {"step_s": seconds, "share_of_copy": rate / copy}
        for sequence in sequences:
            backend.books.release(sequence.table)
    rows = told["prefill_tokens"]
    sequence = _sequence(0, config.num_layers)
    step = _work(backend, [sequence], np.full(rows, 7, dtype="<i4"), position=0)
    seconds = _median_s(lambda: runner.forward(step))
    layer_parameters = sum(config.layer_parameters)
    attention = 2 * config.num_layers * rows * rows * config.query_size  # causal: half of 4
    found["prefill"] = {
        "step_s": seconds,
        "share_of_product": (2 * layer_parameters * rows + attention) / seconds / product,
    }
    return found


def _open(
    checkpoint: Path, device_name: str, *, pages: int
) -> tuple[ModelConfig, ModelBackend, ModelRunner]:
    config, device = read_config(checkpoint), torch.device(device_name)
    decoder = load_decoder(
        checkpoint,
        config,
        first=0,
        end=config.num_layers,
        device=device,
        progress=lambda _done, _total: None,
    )
    limits = EngineLimits(
        page_tokens=PAGE_TOKENS,
        max_batch_tokens=512,
        max_context_tokens=config.max_position_embeddings,
    )
    cache = KvCache(config, pages=pages, page_tokens=PAGE_TOKENS, device=device)
    runner = make_runner(decoder, cache, limits)
    grammars = Grammars(checkpoint, vocab_size=config.vocab_size)
    return config, ModelBackend(runner, grammars=grammars), runner


def _sequence(number: int, num_layers: int) -> Sequence:
    hop = Hop(node="here", first=0, end=num_layers)
    route = Route(hops=(hop,), sampling=SAMPLING, prompt_tokens=1)
    key = RequestKey(request=number, epoch=1)
    return Sequence(key=key, route=route, hop=0, arrival=number)


def _work(
    backend: ModelBackend,
    sequences: list[Sequence],
    tokens: "list[int] | np.ndarray[Any, Any]",
    *,
    position: int,
) -> list[Work]:
    """At position 0 all `tokens` for each, later one of them for each."""
    step = []
    for number, sequence in enumerate(sequences):
        own = tokens if position == 0 else tokens[number : number + 1]
        payload = np.asarray(own, dtype="<i4")
        chunk = Chunk(
            position=position,
            n_tokens=len(payload),
            payload=memoryview(payload.tobytes()),
            is_sampled=True,
            arrival=0,
        )
        backend.books.reserve(sequence.table, tokens=chunk.end)
        step.append(Work(sequence=sequence, chunk=chunk))
    return step


def _copy_bytes_per_s() -> float:
    source = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.nbytes / _median_s(lambda: target.copy_(source))


def _product_flop_per_s() -> float:
    size = 8192
    left, right = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return 2 * size**3 / _median_s(lambda: left @ right)


def _median_s(run: Callable[[], object]) -> float:
    """Median of twenty, after five that warm up; seconds by the device's own events."""
    for _ in range(5):
        run()
    spent = []
    for _ in range(20):
        begins, ends = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begins.record()
        run()
        ends.record()
        torch.cuda.synchronize()
        spent.append(begins.elapsed_time(ends) / 1e3)
    return statistics.median(spent)


if __name__ == "__main__":
    sys.exit(main())
