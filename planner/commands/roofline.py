"""`planner roofline`: a compute profile of a GPU that was not measured, from its data sheet."""

import argparse
import json
from pathlib import Path
from typing import Any

from planner.commands.files import read_text
from planner.domain.errors import InvalidProblem, PlannerError
from planner.domain.problem import Workload
from planner.memory import DEFAULT_KV_REQUESTS, kv_minimum
from planner.roofline import (
    DATA_SHEETS,
    DataSheet,
    LayerShape,
    Vocabulary,
    data_sheet,
    roofline_profile,
)
from planner.serialization.problem_file import profile_to_dict


class IncompleteSheet(PlannerError, ValueError):
    """Numbers of a GPU are incomplete; the message names the missing ones."""


def add_arguments(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("config", type=Path, metavar="CONFIG.json", help="of a Hugging Face checkpoint")
    add("--gpu", required=True, help=f"one of {', '.join(DATA_SHEETS)}, or any with the next three")
    add("--memory-bytes", type=float)
    add("--bytes-per-s", type=float, help="of its memory")
    add("--flops", type=float, help="dense 16-bit matrix products")
    add("--name", help="of the profile (default: the GPU's)")
    add("--mean-prompt-tokens", type=float, default=763.0)
    add("--mean-output-tokens", type=float, default=232.0)
    add(
        "--kv-requests",
        type=int,
        default=DEFAULT_KV_REQUESTS,
        metavar="N",
        help="hold no more layers than leave KV cache for N requests (default: %(default)s)",
    )
    add("--kv-tokens", type=int, metavar="N", help="of so many tokens (default: the mean length)")


def run(parsed: argparse.Namespace) -> None:
    sheet = _sheet(parsed)
    layer, num_layers, vocabulary = _shape(parsed.config)
    workload = Workload(
        mean_prompt_tokens=parsed.mean_prompt_tokens,
        mean_output_tokens=parsed.mean_output_tokens,
    )
    name = parsed.name or parsed.gpu
    profile = roofline_profile(
        name,
        sheet,
        layer,
        gpu=parsed.gpu,
        num_layers=num_layers,
        workload=workload,
        vocabulary=vocabulary,
        minimum=kv_minimum(workload, requests=parsed.kv_requests, tokens=parsed.kv_tokens),
    )
    print(json.dumps({"compute_profiles": {name: profile_to_dict(profile)}}, indent=2))


def _sheet(parsed: argparse.Namespace) -> DataSheet:
    """The GPU's data sheet, or the given numbers. Raises UnknownGpu, IncompleteSheet."""
    numbers = {
        "--memory-bytes": parsed.memory_bytes,
        "--bytes-per-s": parsed.bytes_per_s,
        "--flops": parsed.flops,
    }
    missing = [option for option, value in numbers.items() if value is None]
    if len(missing) == len(numbers):
        return data_sheet(parsed.gpu)
    if missing:
        raise IncompleteSheet(
            f"{' and '.join(missing)} is missing; give all of {', '.join(numbers)}, or none for "
            "the data sheet of --gpu"
        )
    return DataSheet(
        memory_bytes=parsed.memory_bytes, bytes_per_s=parsed.bytes_per_s, flops=parsed.flops
    )


def _shape(path: Path) -> tuple[LayerShape, int, Vocabulary | None]:
    """Shape of a config's decoder layer, number of layers, and the vocabulary if it has one.

    Raises InvalidProblem.
    """
    try:
        config: dict[str, Any] = json.loads(read_text(path))
        config = config.get("text_config", config)
        heads = int(config["num_attention_heads"])
        hidden = int(config["hidden_size"])
        layer = LayerShape(
            hidden_size=hidden,
            intermediate_size=int(config["intermediate_size"]),
            query_heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_size=int(config.get("head_dim") or hidden // heads),
        )
        vocabulary = None
        if "vocab_size" in config:
            is_tied = bool(config.get("tie_word_embeddings", True))
            vocabulary = Vocabulary(size=int(config["vocab_size"]), is_tied=is_tied)
        return layer, int(config["num_hidden_layers"]), vocabulary
    except (ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise InvalidProblem(
            f"{path} is no config of a decoder ({error!r}); give the config.json of a checkpoint"
        ) from error
