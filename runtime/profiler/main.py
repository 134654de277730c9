"""`python -m runtime profile`: measure this machine, print compute profiles for a problem file."""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from planner.domain.problem import Workload
from planner.memory import DEFAULT_KV_REQUESTS
from planner.serialization.problem_file import profile_to_dict
from runtime.checkpoints.weight_source import WeightSource
from runtime.command_numbers import SIZE_HELP, positive_int, ratio, size_bytes
from runtime.engine.helix_engine import HelixEngine
from runtime.engine.limits import EngineLimits
from runtime.models.checkpoint import CheckpointError
from runtime.models.model_config import ModelConfig
from runtime.profiler.measurement import Measurement
from runtime.profiler.node_sweep import FoundT
from runtime.profiler.rehearsal import NoAnswer
from runtime.profiler.step_times import REST_S

_TOKEN_BYTES = 4  # an int32 token id on the wire


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLimits:
    """A node to make a profile for: its memory, and its speed relative to this machine."""

    name: str
    memory_budget_bytes: int
    relative_speed: float


def main(argv: list[str]) -> int:
    """Measure once, print one profile per node. Returns 0, or 2 with one line on stderr."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    nodes = list(arguments.node)
    if arguments.memory_budget_bytes is not None:
        nodes.append(
            NodeLimits(
                name=arguments.name,
                memory_budget_bytes=arguments.memory_budget_bytes,
                relative_speed=arguments.relative_speed,
            )
        )
    if not nodes:
        parser.error("say what to measure for: --memory-budget-bytes N or --node NAME:BYTES:SPEED")
    torch.set_num_threads(arguments.threads)
    try:
        document = _measure(arguments, nodes)
        text = json.dumps(document, indent=2)
        if arguments.output is None:
            print(text)
        else:
            arguments.output.write_text(text + "\n", encoding="utf-8")
    except (CheckpointError, NoAnswer, ValueError, OSError) as error:
        print(f"cannot profile: {error}", file=sys.stderr)
        return 2
    return 0


def _measure(arguments: argparse.Namespace, nodes: list[NodeLimits]) -> dict[str, Any]:
    engine = HelixEngine(WeightSource(folder=arguments.checkpoint))
    workload = Workload(
        mean_prompt_tokens=arguments.mean_prompt_tokens,
        mean_output_tokens=arguments.mean_output_tokens,
    )
    measurement = Measurement(
        arguments.checkpoint,
        engine,
        workload=workload,
        limits=EngineLimits(
            page_tokens=arguments.page_tokens,
            max_batch_tokens=arguments.max_batch_tokens,
            max_context_tokens=(
                arguments.max_context_tokens or engine.sizes.max_position_embeddings
            ),
        ),
        memory_budget_bytes=max(node.memory_budget_bytes for node in nodes),
        clock=time.perf_counter,
        rest=lambda _: time.sleep(REST_S),
    )
    measurement.run(_at_once)
    minimum = measurement.kv_minimum(arguments.kv_requests, arguments.kv_tokens)
    profiles = {}
    for node in nodes:
        profile = measurement.profile(
            node.name,
            memory_budget_bytes=node.memory_budget_bytes,
            relative_speed=node.relative_speed,
            kv_minimum=minimum,
        )
        if profile.max_layers == 0:
            why = measurement.why_no_layer(
                memory_budget_bytes=node.memory_budget_bytes, kv_minimum=minimum
            )
            print(f"{node.name}: {why}, fewer with a lower --max-context-tokens", file=sys.stderr)
        profiles[node.name] = profile_to_dict(profile)
    return {
        "model": model_numbers(arguments.checkpoint.resolve().name, engine.sizes),
        "workload": asdict(workload),
        "compute_profiles": profiles,
    }


def _at_once(_done: float, run: Callable[[], FoundT], /) -> FoundT:
    """A `Turn` of a machine that serves nothing."""
    return run()


def model_numbers(name: str, config: ModelConfig) -> dict[str, Any]:
    """The `model` section of a problem file."""
    return {
        "name": name,
        "num_layers": config.num_layers,
        "activation_bytes_per_token": config.hidden_size * config.dtype.itemsize,
        "token_bytes": _TOKEN_BYTES,
        "bytes_per_layer": config.bytes_per_layer,
    }


def _node(text: str) -> NodeLimits:
    try:
        name, budget, speed = text.rsplit(":", 2)
        limits = NodeLimits(
            name=name, memory_budget_bytes=size_bytes(budget), relative_speed=float(speed)
        )
    except (ValueError, argparse.ArgumentTypeError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not NAME:MEMORY_BUDGET:RELATIVE_SPEED, e.g. slow:8M:0.5"
        ) from None
    if not name or limits.memory_budget_bytes <= 0 or not 0 < limits.relative_speed <= 1:
        raise argparse.ArgumentTypeError(
            f"{text!r}: the memory budget must be above 0, the speed above 0 and at most 1"
        )
    return limits


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m runtime profile", description=__doc__)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument(
        "--node",
        type=_node,
        action="append",
        default=[],
        metavar="NAME:MEMORY_BUDGET:RELATIVE_SPEED",
        help="may be given several times; the machine is measured once",
    )
    parser.add_argument("--name", default="this-machine")
    parser.add_argument("--memory-budget-bytes", type=size_bytes, metavar="SIZE", help=SIZE_HELP)
    parser.add_argument("--relative-speed", type=ratio, default=1.0)
    parser.add_argument("--mean-prompt-tokens", type=float, default=64.0)
    parser.add_argument("--mean-output-tokens", type=float, default=32.0)
    parser.add_argument("--page-tokens", type=positive_int, default=16)
    parser.add_argument("--max-batch-tokens", type=positive_int, default=512)
    parser.add_argument(
        "--max-context-tokens", type=positive_int, help="default: that of the checkpoint"
    )
    parser.add_argument(
        "--kv-requests",
        type=positive_int,
        default=DEFAULT_KV_REQUESTS,
        metavar="N",
        help="a node holds no more layers than leave KV cache for N requests of --kv-tokens, and "
        f"for one of --max-context-tokens; default: {DEFAULT_KV_REQUESTS}",
    )
    parser.add_argument(
        "--kv-tokens",
        type=positive_int,
        metavar="N",
        help="default: --mean-prompt-tokens and --mean-output-tokens together",
    )
    parser.add_argument("--threads", type=positive_int, default=1)
    parser.add_argument("--output", type=Path, help="write there instead of printing")
    return parser
