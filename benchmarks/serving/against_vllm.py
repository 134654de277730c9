"""Output tokens/s of our stages with vLLM's model code against `vllm serve`, and of a chain.

    python benchmarks/serving/against_vllm.py CHECKPOINT --vllm-python PYTHON [--streams 1 8 32]

One core for all: client, coordinator, stages and `vllm serve`. All systems run at once and are
measured in turn. CHECKPOINT is a folder with safetensors, quantised or not.
"""

import argparse
import os
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from cluster import running_chain
from load import measured_streams
from measuring import Measure, measure_all, print_found
from vllm_serve import running_vllm

from runtime.checkpoints.model_facts import read_sizes
from runtime.protocol.engines import Engine, EngineSettings

NODE, CHAIN, OWN, SERVE = "one node, vLLM", "chain, vLLM", "one node, own engine", "vllm serve"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--vllm-python", type=Path, required=True)
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--prompt-tokens", type=int, default=32)
    parser.add_argument("--output-tokens", type=int, default=48)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--stages", type=int, default=3, help="of the chain")
    parser.add_argument("--systems", nargs="+", default=[SERVE, NODE, CHAIN])
    parser.add_argument("--memory-budget", type=int, default=2_500_000_000, metavar="BYTES")
    parser.add_argument("--step-tokens", type=int, default=512, help="most of a step of ours")
    parser.add_argument("--logs", type=Path, help="a new folder that the logs stay in")
    options = parser.parse_args()
    os.sched_setaffinity(0, [options.core])
    os.environ["OMP_NUM_THREADS"] = "1"
    sizes = read_sizes(options.checkpoint)
    context = options.prompt_tokens + options.output_tokens + 16
    of_vllm = EngineSettings(engine=Engine.VLLM, python=str(options.vllm_python))
    chains = {
        NODE: (1, of_vllm),
        CHAIN: (options.stages, of_vllm),
        OWN: (1, EngineSettings(engine=Engine.HELIX)),
    }
    with ExitStack() as stack:
        folder = options.logs or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="serving-"))
        )
        systems: dict[str, Measure] = {}
        for index, name in enumerate(options.systems):
            if name == SERVE:
                running = stack.enter_context(
                    running_vllm(
                        options.vllm_python,
                        options.checkpoint,
                        folder / str(index),
                        dtype=sizes.dtype_name,
                        max_context_tokens=context,
                        kv_gib=1,
                    )
                )
            else:
                stages, engine = chains[name]
                running = stack.enter_context(
                    running_chain(
                        options.checkpoint,
                        folder / str(index),
                        stages=stages,
                        num_layers=sizes.num_layers,
                        threads=1,
                        memory_budget_bytes=options.memory_budget,
                        max_context_tokens=context,
                        mean_output_tokens=options.output_tokens,
                        engine=engine,
                        max_batch_tokens=options.step_tokens,
                    )
                )
            systems[name] = partial(measured_streams, running, output_tokens=options.output_tokens)
        found = measure_all(
            systems,
            streams=options.streams,
            repeats=options.repeats,
            prompt_tokens=options.prompt_tokens,
            vocabulary=sizes.vocab_size,
        )
    pairs = [(NODE, SERVE), (CHAIN, NODE), (OWN, NODE)]
    print_found(found, [pair for pair in pairs if systems.keys() >= set(pair)])


if __name__ == "__main__":
    main()
