"""All that is measured on a GPU, in one call of a few minutes.

    PYTHONPATH=. python benchmarks/gpu/run_all.py [--parameters FILE.toml] [--dry-run]

1. Equality: a small checkpoint's greedy tokens, by pages and recorded decodes, against the same
   model on the CPU, in float32 (which gathers pages) and by logits in bfloat16.
2. Decode at a batch of 1 and 32: bytes of weights and of keys and values read per second, as a
   share of the copy bandwidth measured here.
3. Prefill: operations per second, as a share of the matrix product's rate measured here.
4. Rows on their way between device and wire, by pinned memory and by other.
5. Where the time of a decode and a prefill goes, by operation.

Prints JSON. Needs a GPU; says so and ends with status 2 without one. `--dry-run` does all of it on
the CPU with the sizes of dry_run.toml, to see that it works; its figures mean nothing.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from runtime.engine.grammar import Grammars
from runtime.engine.host_memory import HostMemory, host_memory
from runtime.engine.kv_cache import KvCache
from runtime.engine.limits import EngineLimits
from runtime.engine.model_backend import ModelBackend
from runtime.engine.model_runner import ModelRunner
from runtime.engine.sequence import Chunk, RequestKey, Sequence, Work
from runtime.models.config import read_config
from runtime.models.model_config import ModelConfig
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.models.weights import load_decoder
from runtime.protocol.routes import Hop, Route, Sampling

HERE = Path(__file__).parent
PAGE_TOKENS = 16
PROFILED = 5
MOST_OPERATIONS = 12
SAMPLING = Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=10_000)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parameters", type=Path, default=HERE / "parameters.toml")
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, with tiny sizes")
    parsed = parser.parse_args()
    if not parsed.dry_run and not torch.cuda.is_available():
        print("no GPU is here; nothing was measured", file=sys.stderr)
        return 2
    path = HERE / "dry_run.toml" if parsed.dry_run else parsed.parameters
    bench = Bench("cpu" if parsed.dry_run else "cuda", tomllib.loads(path.read_text()))
    print(json.dumps(bench.run_all(), indent=1))
    return 0


class Bench:
    """Everything that is measured, on one device."""

    def __init__(self, device_name: str, parameters: dict[str, Any]) -> None:
        self._device = torch.device(device_name)
        self._parameters = parameters

    def run_all(self) -> dict[str, Any]:
        began_s = time.monotonic()
        parameters = self._parameters
        found: dict[str, Any] = {
            "device": torch.cuda.get_device_name(0) if self._is_gpu else "CPU: a dry run",
            "torch": torch.__version__,
        }
        with tempfile.TemporaryDirectory(prefix="gpu-") as folder:
            found["equality"] = self._equality(Path(folder) / "small", parameters["small"])
            copy = self._copy_bytes_per_s(parameters["copy_bytes"])
            product = self._product_flop_per_s(parameters["product_size"])
            found["copy_bytes_per_s"], found["product_flop_per_s"] = copy, product
            large = Path(folder) / "large"
            make_tiny_checkpoint(large, sizes=TinySizes(**parameters["large"]), seed=1)
            found |= self._speeds(large, parameters["speed"], copy=copy, product=product)
        found["rows"] = self._rows(parameters["rows"])
        found["seconds"] = time.monotonic() - began_s
        return found

    @property
    def _is_gpu(self) -> bool:
        return self._device.type == "cuda"

    def _equality(self, checkpoint: Path, sizes: dict[str, Any]) -> dict[str, Any]:
        """Tokens of the same prompts on both devices, and how far the logits are apart."""
        result: dict[str, Any] = {}
        for dtype in ("float32", "bfloat16"):
            directory = checkpoint.with_name(f"{checkpoint.name}-{dtype}")
            make_tiny_checkpoint(directory, sizes=TinySizes(**sizes, dtype=dtype), seed=2)
            tokens, logits = {}, {}
            for side, device in (("cpu", torch.device("cpu")), ("device", self._device)):
                config, backend, runner = _open(directory, device, pages=4000)
                sequences = [_sequence(number, config.num_layers) for number in range(5)]
                prompt = np.random.default_rng(0).integers(4, config.vocab_size, 40, dtype="<i4")
                step = _work(backend, sequences, prompt, position=0)
                hidden_TD = runner.forward(step)
                logits[side] = runner.logits(hidden_TD[39::40]).float().cpu()
                last = logits[side].argmax(-1).tolist()
                tokens[side] = [last]
                for position in range(40, 72):
                    drawn = backend.run(_work(backend, sequences, last, position=position)).drawn
                    last = [drawn[index].token_id for index in range(len(sequences))]
                    tokens[side].append(last)
            result[dtype] = {
                "tokens_equal": tokens["cpu"] == tokens["device"],
                "logits_apart": float((logits["cpu"] - logits["device"]).abs().max()),
                "largest_logit": float(logits["cpu"].abs().max()),
            }
        return result

    def _speeds(
        self, checkpoint: Path, told: dict[str, Any], *, copy: float, product: float
    ) -> dict[str, Any]:
        context, blocks = told["context_tokens"], -(-(told["context_tokens"] + 64) // PAGE_TOKENS)
        config = read_config(checkpoint)
        most = max(told["decode_batches"])
        config, backend, runner = _open(
            checkpoint, self._device, pages=most * blocks * config.num_layers
        )
        found: dict[str, Any] = {}
        for batch in told["decode_batches"]:
            sequences = [_sequence(number, config.num_layers) for number in range(batch)]
            step = _work(backend, sequences, [7] * batch, position=context)
            seconds = self._median_s(lambda step=step: backend.run(step))
            kv_bytes = (
                2 * context * config.kv_size * config.dtype.itemsize * config.num_layers * batch
            )
            rate = (runner.weights_bytes + kv_bytes) / seconds
            found[f"decode_{batch}"] = {
                "step_s": seconds,
                "share_of_copy": rate / copy,
                "profile": self._profile(lambda step=step: backend.run(step)),
            }
            for sequence in sequences:
                backend.books.release(sequence.table)
        rows = told["prefill_tokens"]
        sequence = _sequence(0, config.num_layers)
        step = _work(backend, [sequence], np.full(rows, 7, dtype="<i4"), position=0)
        seconds = self._median_s(lambda: runner.forward(step))
        layer_parameters = sum(config.layer_bytes) // config.element_bytes
        attention = 2 * config.num_layers * rows * rows * config.query_size  # causal: half of 4
        found["prefill"] = {
            "step_s": seconds,
            "share_of_product": (2 * layer_parameters * rows + attention) / seconds / product,
            "profile": self._profile(lambda: runner.forward(step)),
        }
        return found

    def _rows(self, told: dict[str, Any]) -> dict[str, float]:
        """Seconds for the rows of a step to the device and back."""
        there = torch.randn(told["count"], told["hidden_size"], device=self._device)
        there = there.to(torch.bfloat16)

        def pass_by(host: HostMemory) -> Callable[[], object]:
            def run() -> object:
                rows = host.empty(*there.shape, dtype=there.dtype)
                return host.to_host(host.to_device(rows) + there)

            return run

        return {
            "pinned_s": self._median_s(pass_by(host_memory(self._device))),
            "other_s": self._median_s(pass_by(HostMemory(self._device, pinned=None))),
        }

    def _profile(self, run: Callable[[], object]) -> dict[str, float]:
        """Seconds of the operations that take most of a run, on the device."""
        activities = [torch.profiler.ProfilerActivity.CPU]
        if self._is_gpu:
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(activities=activities) as profiler:
            for _ in range(PROFILED):
                run()
            self._wait()
        of_event = "self_device_time_total" if self._is_gpu else "self_cpu_time_total"
        spent = {event.key: getattr(event, of_event) for event in profiler.key_averages()}
        most = sorted(spent, key=lambda name: spent[name], reverse=True)[:MOST_OPERATIONS]
        return {name: spent[name] / 1e6 / PROFILED for name in most}

    def _copy_bytes_per_s(self, size: int) -> float:
        source = torch.empty(size, dtype=torch.uint8, device=self._device)
        target = torch.empty_like(source)
        return 2 * source.nbytes / self._median_s(lambda: target.copy_(source))

    def _product_flop_per_s(self, size: int) -> float:
        left, right = (
            torch.randn(size, size, device=self._device, dtype=torch.bfloat16) for _ in range(2)
        )
        return 2 * size**3 / self._median_s(lambda: left @ right)

    def _median_s(self, run: Callable[[], object]) -> float:
        """Median of twenty, after five that warm up; on a GPU by its own events."""
        for _ in range(5):
            run()
        spent = []
        for _ in range(20):
            if not self._is_gpu:
                began_s = time.perf_counter()
                run()
                spent.append(time.perf_counter() - began_s)
                continue
            begins, ends = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begins.record()
            run()
            ends.record()
            self._wait()
            spent.append(begins.elapsed_time(ends) / 1e3)
        return statistics.median(spent)

    def _wait(self) -> None:
        """Until the device has done what it was given."""
        if self._is_gpu:
            torch.cuda.synchronize()


def _open(
    checkpoint: Path, device: torch.device, *, pages: int
) -> tuple[ModelConfig, ModelBackend, ModelRunner]:
    config = read_config(checkpoint)
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
    runner = ModelRunner(decoder, cache, max_context_tokens=limits.max_context_tokens)
    grammars = Grammars(checkpoint, vocab_size=config.vocab_size)
    return config, ModelBackend(runner, grammars=grammars), runner


def _sequence(number: int, num_layers: int) -> Sequence:
    hop = Hop(node="here", first=0, end=num_layers)
    route = Route(hops=(hop,), sampling=SAMPLING, prompt_tokens=1)
    key = RequestKey(request=number, epoch=1)
    return Sequence(key=key, generation=1, route=route, hop=0, arrival=number)


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


if __name__ == "__main__":
    sys.exit(main())
