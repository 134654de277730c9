"""Output tokens/s of one node against transformers, and of a chain of stages against one node.

    python benchmarks/serving/compare.py [PARAMETERS.toml] [--cache FOLDER] [--json FILE]

One run, all systems side by side: each repeat measures every system at every number of streams,
in an order that turns. Printed: the median and the range over the repeats, tokens per CPU second
(which a busy machine disturbs less), and the ratios.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from checkpoint import cached_checkpoint
from cluster import running_chain
from load import measured_streams
from measuring import Measure, Measured, measure_all, print_found

from runtime.models.tiny_checkpoint import TinySizes

HERE = Path(__file__).parent
NODE, CHAIN = "one node", "chain"
# the ways of transformers_side.py, by what they are called here
WAYS = {"static": "generate", "continuous": "continuous"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parameters", type=Path, nargs="?", default=HERE / "parameters.toml")
    parser.add_argument(
        "--cache", type=Path, default=Path(tempfile.gettempdir()) / "helixweb-serving"
    )
    parser.add_argument("--json", type=Path, help="write every measurement there")
    options = parser.parse_args()
    parameters = tomllib.loads(options.parameters.read_text())
    os.sched_setaffinity(0, parameters["cores"])
    sizes = TinySizes(**parameters["model"])
    checkpoint = cached_checkpoint(options.cache, sizes)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="serving-")))
        systems = _start_systems(stack, checkpoint, folder, sizes, parameters)
        found = measure_all(
            systems,
            streams=parameters["streams"],
            repeats=parameters["repeats"],
            prompt_tokens=parameters["prompt_tokens"],
            vocabulary=sizes.vocab_size,
        )
    if options.json is not None:
        rows = [
            {"system": system, "streams": streams, "tokens": one.tokens, "seconds": one.seconds,
             "cpu_s": one.cpu_s}
            for (system, streams), measured in found.items()
            for one in measured
        ]  # fmt: skip
        options.json.write_text(json.dumps(rows, indent=1))
    pairs = [(CHAIN, NODE)] + [
        (NODE, _called(name, dtype))
        for dtype in parameters["transformers_dtypes"]
        for name in WAYS.values()
    ]
    print_found(found, pairs)


def _start_systems(
    stack: ExitStack,
    checkpoint: Path,
    folder: Path,
    sizes: TinySizes,
    parameters: dict[str, Any],
) -> dict[str, Measure]:
    output_tokens, threads = parameters["output_tokens"], len(parameters["cores"])
    systems: dict[str, Measure] = {}
    for name, stages in ((NODE, 1), (CHAIN, parameters["stages"]["split"])):
        running = stack.enter_context(
            running_chain(
                checkpoint,
                folder / f"{stages}-stages",
                stages=stages,
                num_layers=sizes.num_layers,
                threads=threads,
                memory_budget_bytes=parameters["stages"]["memory_budget_bytes"],
                max_context_tokens=sizes.max_position_embeddings,
                mean_output_tokens=output_tokens,
            )
        )
        systems[name] = partial(measured_streams, running, output_tokens=output_tokens)
    for dtype in parameters["transformers_dtypes"]:
        process = stack.enter_context(_transformers(checkpoint, threads=threads, dtype=dtype))
        for way, name in WAYS.items():
            systems[_called(name, dtype)] = partial(_with_transformers, process, way, output_tokens)
    return systems


def _called(name: str, dtype: str) -> str:
    return f"{name}, {dtype}"


def _with_transformers(
    process: "subprocess.Popen[str]", way: str, output_tokens: int, prompts: list[list[int]]
) -> Measured:
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("transformers was started without pipes")
    asked = {"way": way, "prompts": prompts, "output_tokens": output_tokens}
    process.stdin.write(json.dumps(asked) + "\n")
    process.stdin.flush()
    answer = Measured(**json.loads(process.stdout.readline() or '{"ended": true}'))
    if answer.tokens != len(prompts) * output_tokens:
        raise RuntimeError(
            f"transformers ({way}) made {answer.tokens} tokens where "
            f"{len(prompts) * output_tokens} were asked for"
        )
    return answer


@contextmanager
def _transformers(
    checkpoint: Path, *, threads: int, dtype: str
) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [
            sys.executable,
            str(HERE / "transformers_side.py"),
            str(checkpoint),
            f"--threads={threads}",
            f"--dtype={dtype}",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": str(threads)},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main()
