"""Output tokens/s of one node against transformers, and of a chain of stages against one node.

    python benchmarks/serving/compare.py [PARAMETERS.toml] [--cache FOLDER] [--json FILE]

One run, all systems side by side: each repeat measures every system at every number of streams,
in an order that turns. Printed: the median and the range over the repeats, tokens per CPU second
(which a busy machine disturbs less), and the ratios.
"""

import argparse
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from checkpoint import cached_checkpoint
from cluster import Running, running_chain
from load import run_streams

from runtime.models.tiny_checkpoint import TinySizes

HERE = Path(__file__).parent
NODE, CHAIN = "one node", "chain"
# the ways of transformers_side.py, by what they are called here
WAYS = {"static": "generate", "continuous": "continuous"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One batch of streams."""

    tokens: int
    seconds: float
    cpu_s: float


Measure = Callable[[list[list[int]]], Measured]


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
        found = _measure_all(systems, parameters, vocabulary=sizes.vocab_size)
    if options.json is not None:
        rows = [
            {"system": system, "streams": streams, "tokens": one.tokens, "seconds": one.seconds,
             "cpu_s": one.cpu_s}
            for (system, streams), measured in found.items()
            for one in measured
        ]  # fmt: skip
        options.json.write_text(json.dumps(rows, indent=1))
    _print(found, parameters)


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
        systems[name] = partial(_through_coordinator, running, output_tokens)
    for dtype in parameters["transformers_dtypes"]:
        process = stack.enter_context(_transformers(checkpoint, threads=threads, dtype=dtype))
        for way, name in WAYS.items():
            systems[_called(name, dtype)] = partial(_with_transformers, process, way, output_tokens)
    return systems


def _called(name: str, dtype: str) -> str:
    return f"{name}, {dtype}"


def _measure_all(
    systems: dict[str, Measure], parameters: dict[str, Any], *, vocabulary: int
) -> dict[tuple[str, int], list[Measured]]:
    dice = random.Random(1)
    found: dict[tuple[str, int], list[Measured]] = {}
    turning = itertools.cycle(range(len(systems)))
    for repeat in range(-1, parameters["repeats"]):  # -1 warms up and is forgotten
        for streams in parameters["streams"] if repeat >= 0 else (1, 2):
            order = list(systems)
            start = next(turning)
            for name in order[start:] + order[:start]:
                # none shares its beginning with another, or with another run
                prompts = [
                    [dice.randrange(4, vocabulary) for _ in range(parameters["prompt_tokens"])]
                    for _ in range(streams)
                ]
                measured = systems[name](prompts)
                if repeat < 0:
                    continue
                found.setdefault((name, streams), []).append(measured)
                print(
                    f"repeat {repeat} {name:22} {streams:3} streams "
                    f"{measured.tokens / measured.seconds:8.2f} tokens/s "
                    f"{measured.tokens / measured.cpu_s:8.2f} tokens/CPU s",
                    file=sys.stderr,
                )
    return found


def _through_coordinator(
    running: Running, output_tokens: int, prompts: list[list[int]]
) -> Measured:
    """The client's CPU time counts as ours."""
    cpu_began, own_began = running.cpu_s(), time.process_time()
    tokens, seconds = run_streams(running.url, prompts, output_tokens=output_tokens)
    cpu_s = running.cpu_s() - cpu_began + time.process_time() - own_began
    return Measured(tokens=tokens, seconds=seconds, cpu_s=cpu_s)


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


def _print(found: dict[tuple[str, int], list[Measured]], parameters: dict[str, Any]) -> None:
    rates = {key: [one.tokens / one.seconds for one in measured] for key, measured in found.items()}
    cpu_rates = {
        key: statistics.median(one.tokens / one.cpu_s for one in measured)
        for key, measured in found.items()
    }
    medians = {key: statistics.median(each) for key, each in rates.items()}
    print("| system | streams | tokens/s, median (range) | tokens/CPU s |")
    print("|---|---|---|---|")
    for (system, streams), each in sorted(rates.items(), key=lambda item: item[0][1]):
        print(
            f"| {system} | {streams} | {medians[system, streams]:.2f} "
            f"({min(each):.2f} to {max(each):.2f}) | {cpu_rates[system, streams]:.2f} |"
        )
    pairs = [(CHAIN, NODE)] + [
        (NODE, _called(name, dtype))
        for dtype in parameters["transformers_dtypes"]
        for name in WAYS.values()
    ]
    print("\n| streams | " + " | ".join(f"{ours} / {theirs}" for ours, theirs in pairs) + " |")
    print("|---" * (len(pairs) + 1) + "|")
    for streams in parameters["streams"]:
        ratios = (
            f"{medians[ours, streams] / medians[theirs, streams]:.2f} "
            f"({cpu_rates[ours, streams] / cpu_rates[theirs, streams]:.2f} by CPU time)"
            for ours, theirs in pairs
        )
        print(f"| {streams} | {' | '.join(ratios)} |")


if __name__ == "__main__":
    main()
