"""Serving over slow links, as MoLink's Tables 2-5: ours beside FIFO and concurrent sending.

    python -m benchmarks.slow_links.serving LENGTHS.csv [--only CELL ...] [--at-once RUNS] [--parts]

Three stages and a coordinator, each a process in a namespace of its own, joined by shaped links.
Stages take their times from a profile and send rows of the model's full size; everything else is
the runtime's. LENGTHS.csv: prompt and output tokens of requests (Azure conversation trace). Needs
root. Prints means over the requests that arrived in the window, one line for each cell and rule.
"""

import argparse
import csv
import json
import math
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.slow_links.serving_front import Arrival, FrontOrder
from benchmarks.slow_links.serving_stage import PAGE_TOKENS, StageOrder
from benchmarks.slow_links.start import start
from planner.domain.cluster import COORDINATOR
from planner.domain.placement import LayerRange, Placement
from runtime.protocol.control import PeerAddress
from runtime.protocol.emulation import Emulation
from runtime.protocol.engine_options import EngineOptions
from runtime.transport.link_scheduler import LinkRule
from runtime.transport.zmq_sockets import KeyPair
from tests.shaped_links.network import RelayedLink, Side, relayed_mesh
from tests.shaped_links.shaped_pipe import Shape

_SIDES: dict[str, Side] = {"s1": "a", "s2": "b", "s3": "c", COORDINATOR: "d"}
_PORT = 7801
_DEPTH = 3


def arrivals_of(
    lengths: list[tuple[int, int]], parameters: dict[str, Any], rate_per_s: float
) -> tuple[Arrival, ...]:
    """Poisson arrivals, the same for every rule; lengths drawn from the trace."""
    chance = random.Random(parameters["seed"])
    at_s, found = 0.0, []
    until_s = parameters["warm_up_s"] + parameters["window_s"]
    while (at_s := at_s + chance.expovariate(rate_per_s)) < until_s:
        prompt, output = chance.choice(lengths)
        shorter = max(2, round(output * parameters["output_scale"]))
        found.append(Arrival(at_s=at_s, prompt_tokens=prompt, output_tokens=shorter))
    return tuple(found)


def read_lengths(path: Path, parameters: dict[str, Any]) -> list[tuple[int, int]]:
    """Without those that the paper leaves out, too."""
    with path.open() as file:
        rows = [(int(row["input_len"]), int(row["output_len"])) for row in csv.DictReader(file)]
    most_prompt, most_output = parameters["most_prompt_tokens"], parameters["most_output_tokens"]
    return [(p, o) for p, o in rows if 0 < p <= most_prompt and 1 < o <= most_output]


def run(
    link: RelayedLink,
    rule: str,
    options: EngineOptions,
    arrivals: tuple[Arrival, ...],
    parameters: dict[str, Any],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What became of each request, and the counters of every link between stages."""
    emulation = Emulation.model_validate(parameters["emulation"])
    layers = emulation.model.num_layers
    keys = {name: KeyPair.generate() for name in _SIDES}
    binds = {name: f"tcp://{link.address(side)}:{_PORT}" for name, side in _SIDES.items()}
    peers = {
        name: PeerAddress(name=name, endpoint=binds[name], public_key=keys[name].public_key)
        for name in _SIDES
    }
    placement = Placement(
        layers={
            f"s{number + 1}": LayerRange(
                first=layers * number // _DEPTH, end=layers * (number + 1) // _DEPTH
            )
            for number in range(_DEPTH)
        }
    )
    with ExitStack() as closing:
        stages = []
        for name, held in placement.layers.items():
            order = StageOrder(
                name=name,
                bind=binds[name],
                secret_key=keys[name].secret_key,
                peers=tuple(peer for other, peer in peers.items() if other != name),
                first=held.first,
                end=held.end,
                rule=LinkRule(rule),
                options=options,
                emulation=emulation,
                max_batch_tokens=parameters["max_batch_tokens"],
                max_context_tokens=parameters["max_context_tokens"],
            )
            stages.append(_start(link, name, "serving_stage", order.model_dump_json(), closing))
        front = FrontOrder(
            bind=binds[COORDINATOR],
            secret_key=keys[COORDINATOR].secret_key,
            peers=tuple(peer for name, peer in peers.items() if name != COORDINATOR),
            placement=placement,
            num_layers=layers,
            max_context_tokens=parameters["max_context_tokens"],
            arrivals=arrivals,
            drain_s=parameters["drain_s"],
        )
        fronting = _start(link, COORDINATOR, "serving_front", front.model_dump_json(), closing)
        told = json.loads(_line(fronting))
        links = []
        for stage in stages:
            if stage.stdin is not None:
                stage.stdin.close()
            links += json.loads(_line(stage)).values()
    return told, links


def _start(
    link: RelayedLink, name: str, module: str, line: str, closing: ExitStack
) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", f"benchmarks.slow_links.{module}"]
    process = closing.enter_context(link.popen(_SIDES[name], command))
    closing.callback(process.terminate)
    if process.stdin is None:
        raise RuntimeError(f"{name} has no stdin")
    process.stdin.write(line + "\n")
    process.stdin.flush()
    return process


def _line(process: "subprocess.Popen[str]") -> str:
    if process.stdout is None:
        raise RuntimeError("a process has no stdout")
    return process.stdout.readline()


def report(
    name: str,
    told: list[dict[str, Any]],
    links: list[dict[str, Any]],
    *,
    since_s: float,
    base: dict[str, float] | None,
) -> dict[str, float]:
    """Print a line; shares are of `base`, the means of the cell's first variant."""
    counted = [one for one in told if one["at_s"] >= since_s]

    def mean(key: str) -> float:
        values = [one[key] for one in counted if one[key] is not None]
        return statistics.mean(values) if values else math.nan

    means = {key: mean(f"{key}_s") for key in ("ttft", "tpot", "e2e")}
    cells = [
        f"{value:7.3f} ({100 * value / base[key]:3.0f} %)" if base else f"{value:7.3f} (100 %)"
        for key, value in means.items()
    ]
    unfinished = sum(one["e2e_s"] is None for one in counted)
    print(
        f"{name:30} {'  '.join(cells)}  {len(counted):3d} requests, {unfinished} unfinished",
        flush=True,
    )
    return means


def report_parts(told: list[dict[str, Any]], *, since_s: float) -> None:
    """Where the mean TTFT went, of the requests whose traces are there."""
    counted = [one["parts"] for one in told if one["at_s"] >= since_s and one["parts"]]
    names = list(dict.fromkeys(name for parts in counted for name in parts))
    means = {name: sum(p.get(name, 0.0) for p in counted) / len(counted) for name in names}
    print("    " + ", ".join(f"{name} {mean:.3f}" for name, mean in means.items()), flush=True)


def measure(
    jobs: list[tuple[dict[str, Any], dict[str, Any]]],
    parameters: dict[str, Any],
    lengths: list[tuple[int, int]],
    *,
    at_once: int,
) -> Iterator[tuple[list[dict[str, Any]], list[dict[str, Any]]]]:
    """Of each cell and variant, in order: what became of the requests, counters of its links.

    Each has processes, namespaces and links of its own; variants of a cell have the same requests.
    """

    def one(
        job: tuple[dict[str, Any], dict[str, Any]],
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        cell, variant = job
        shape = Shape(
            rate_bytes_per_s=cell["bytes_per_s"], delay_s=cell["delay_s"], queue_bytes=2_000_000
        )
        arrivals = arrivals_of(lengths, parameters | cell, cell["rate_per_s"])
        options = EngineOptions.model_validate(variant.get("options", {}))
        with relayed_mesh(len(_SIDES), shape) as link:
            return run(link, variant["rule"], options, arrivals, parameters)

    with ThreadPoolExecutor(at_once) as running:
        yield from running.map(one, jobs)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lengths", type=Path)
    parser.add_argument("--only", nargs="+", help="cells of these names")
    parser.add_argument("--variants", nargs="+", help="only those of these names")
    parser.add_argument(
        "--at-once", type=int, default=1, help="runs side by side: half a core each"
    )
    parser.add_argument("--parts", action="store_true", help="tell where the TTFT went, too")
    arguments, whole = start(parser, argv)
    parameters = whole["serving"]
    lengths = read_lengths(arguments.lengths, parameters)
    by_name = {variant["name"]: variant for variant in parameters["variants"]}
    jobs = [
        (cell, by_name[name])
        for cell in parameters["cells"]
        for name in cell.get("variants", parameters["compared"])
        if not arguments.only or cell["name"] in arguments.only
        if not arguments.variants or name in arguments.variants
    ]
    print(f"pages of {PAGE_TOKENS} tokens; means: TTFT s, TPOT s, end-to-end s (of the first's)")
    base: dict[str, dict[str, float]] = {}
    done = measure(jobs, parameters, lengths, at_once=arguments.at_once)
    for (cell, variant), (told, links) in zip(jobs, done, strict=True):
        since_s, name = parameters["warm_up_s"], cell["name"]
        means = report(
            f"{name}: {variant['name']}", told, links, since_s=since_s, base=base.get(name)
        )
        base.setdefault(name, means)
        if arguments.parts:
            report_parts(told, since_s=since_s)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
