"""One measurement of `run_all.py`, in a process of its own and the Python that it needs.

Reads an order as JSON from stdin, writes what was found as JSON to the file that is its argument.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")

import numpy as np
import torch

Prompts = list[list[int]]
_SPEED_RUNS = 7


def stage(order: dict[str, Any]) -> dict[str, Any]:
    """A stage with all layers, opened as its process does."""
    from runtime.protocol.control import StageAssignment
    from runtime.protocol.engines import ComputeDtype, Engine, EngineSettings
    from runtime.protocol.stage_pipe import StageLaunch

    is_gpu = torch.cuda.is_available()
    assignment = StageAssignment(
        deployment_id=1,
        generation=1,
        model_name="m",
        first=0,
        end=order["layers"],
        checkpoint=order["checkpoint"],
        num_layers=order["layers"],
        peers=(),
        max_context_tokens=order["context_tokens"],
        max_batch_tokens=order["batch_tokens"],
        page_tokens=16,
        tensor_parallel=order["ranks"],
        reserve_bytes=order["reserve_bytes"],
    )
    launch = StageLaunch(
        assignment=assignment,
        name="n",
        bind="tcp://127.0.0.1:0",
        secret_key_file="",
        public_key="k" * 40,
        memory_budget_bytes=order["budget_bytes"] * order["ranks"],
        engine=EngineSettings(
            engine=Engine(order["engine"]),
            compute_dtype=ComputeDtype(order["dtype"]),
            has_gpu=is_gpu,
            decode_graphs=order["graphs"],
        ),
    )
    if launch.engine.engine is Engine.VLLM:
        from runtime.engine.vllm_engine import VllmEngine

        engine: Any = VllmEngine
    else:
        from runtime.engine.helix_engine import HelixEngine

        engine = HelixEngine
    from runtime.engine.opening import open_stage

    opened = open_stage(
        launch,
        engine,
        progress=lambda _done, _total: None,
        on_lost=lambda message: sys.exit(message),
    )
    backend: Any = opened.backend
    host = backend._runner.host
    found: dict[str, Any] = {
        "engine": backend.engine,
        "gpu": torch.cuda.get_device_name() if is_gpu else "none",
        "capability": list(torch.cuda.get_device_capability()) if is_gpu else None,
        "pages": backend.kv_manager.total,
        "is_pinned": host.empty(1, dtype=torch.uint8).is_pinned(),
        "ids": [_Generation(backend, [prompt]).run(order["tokens"]) for prompt in order["prompts"]],
    }
    if is_gpu:
        found |= _profile_of_a_decode(backend, order["prompts"])
    found["tokens_per_s"] = _speeds(
        order, lambda prompts, tokens: _Generation(backend, prompts).run(tokens)
    )
    if is_gpu:
        found["peak_bytes"] = torch.cuda.max_memory_reserved()
        found["budget_bytes"] = launch.memory_budget_bytes
    opened.close()
    return found


class _Generation:
    """Greedy answers to prompts that run side by side."""

    def __init__(self, backend: Any, prompts: Prompts) -> None:
        from runtime.engine.sequence import RequestKey, Sequence
        from runtime.protocol.data import Hop, Route, Sampling

        greedy = Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=1 << 20)
        hop = Hop(node="n", first=0, end=backend.shape.num_layers)
        route = Route(hops=(hop,), sampling=greedy, prompt_tokens=1)
        self._backend = backend
        self._prompts = prompts
        self._sequences = [
            Sequence(
                key=RequestKey(request=number, epoch=1),
                generation=1,
                route=route,
                hop=0,
                arrival=number,
            )
            for number in range(len(prompts))
        ]
        self._done = [0] * len(prompts)

    def step(self, ids: Prompts) -> Prompts:
        """Run these tokens of each request; the next one of each."""
        from runtime.engine.sequence import Chunk, Work

        works = []
        for number, own in enumerate(ids):
            chunk = Chunk(
                position=self._done[number],
                n_tokens=len(own),
                payload=memoryview(np.asarray(own, dtype="<i4").tobytes()),
                is_sampled=True,
                arrival=0,
            )
            self._done[number] += len(own)
            sequence = self._sequences[number]
            self._backend.kv_manager.reserve(sequence.table, tokens=chunk.end)
            works.append(Work(sequence=sequence, chunk=chunk))
        result = self._backend.run(works)
        if result.failed:
            raise RuntimeError(f"requests failed: {result.failed}")
        return [[result.drawn[number].token_id] for number in range(len(ids))]

    def run(self, tokens: int) -> Prompts | list[int]:
        """As many tokens of each; a list of numbers for one prompt."""
        last = self.step(self._prompts)
        answers = [list(each) for each in last]
        for _ in range(tokens - 1):
            last = self.step(last)
            for answer, each in zip(answers, last, strict=True):
                answer += each
        self.release()
        return answers[0] if len(answers) == 1 else answers

    def release(self) -> None:
        for sequence in self._sequences:
            self._backend.kv_manager.release(sequence.table)


def _profile_of_a_decode(backend: Any, prompts: Prompts) -> dict[str, float]:
    """Copies between host and device, what else the device was given, how long it was at work."""
    generation = _Generation(backend, prompts)
    last = generation.step(generation.step(prompts))
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        generation.step(last)
        torch.cuda.synchronize()
    generation.release()
    on_device = [
        each for each in profiler.events() if each.device_type == torch.autograd.DeviceType.CUDA
    ]
    copies = [each for each in on_device if each.name.startswith("Memcpy")]
    return {
        "copies": sum("HtoD" in each.name or "DtoH" in each.name for each in copies),
        "kernels": len(on_device) - len(copies),
        "device_ms": sum(each.self_device_time_total for each in on_device) / 1000,
    }


def whole_vllm(order: dict[str, Any]) -> dict[str, Any]:
    """vLLM alone: eager, so that kernels are those of a stage; for speed as it starts by itself."""
    from vllm import LLM, SamplingParams

    model = LLM(
        order["checkpoint"],
        dtype=order["dtype"],
        skip_tokenizer_init=True,
        enforce_eager=not order["speeds"],
        max_model_len=order["context_tokens"],
        enable_prefix_caching=False,
        gpu_memory_utilization=0.1,  # asked for at the start; other parts run beside it
        kv_cache_memory_bytes=order["budget_bytes"] // 4,
    )

    def answers(prompts: Prompts, tokens: int) -> Prompts:
        sampling = SamplingParams(
            temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False
        )
        asked = [{"prompt_token_ids": prompt} for prompt in prompts]
        return [
            list(each.outputs[0].token_ids)
            for each in model.generate(asked, sampling, use_tqdm=False)
        ]

    speeds = _speeds(order, answers)
    ids = [answers([prompt], order["tokens"])[0] for prompt in order["prompts"]]
    return {"ids": ids, "tokens_per_s": speeds}


def _speeds(order: dict[str, Any], run: Callable[[Prompts, int], object]) -> dict[str, float]:
    """Output tokens a second by the number of requests at once: the median of some runs."""
    speeds = {}
    for count, prompt_tokens, tokens in order["speeds"]:
        prompts = [_numbers(prompt_tokens, start=number) for number in range(count)]
        run(prompts, tokens)  # compiles and records
        seconds = []
        for _ in range(_SPEED_RUNS):
            began_s = time.perf_counter()
            run(prompts, tokens)
            seconds.append(time.perf_counter() - began_s)
        speeds[str(count)] = count * tokens / median(seconds)
    return speeds


def transformers(order: dict[str, Any]) -> dict[str, Any]:
    """The whole model on the CPU, in float32."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(order["checkpoint"], dtype=torch.float32)
    found = []
    for prompt in order["prompts"]:
        ids = torch.tensor([prompt])
        for _ in range(order["tokens"]):
            with torch.inference_mode():
                following = model(ids).logits[0, -1].argmax()
            ids = torch.cat([ids, following[None, None]], dim=1)
        found.append(ids[0, len(prompt) :].tolist())
    return {"ids": found}


def _numbers(count: int, *, start: int) -> list[int]:
    return [5 + (start * 31 + 7 * place) % 200 for place in range(count)]


if __name__ == "__main__":
    given = json.load(sys.stdin)
    kinds = {"whole vllm": whole_vllm, "transformers": transformers}
    result = kinds.get(given["engine"], stage)(given)
    Path(sys.argv[1]).write_text(json.dumps(result), encoding="utf-8")
