"""The command line of `python -m runtime agent`."""

import argparse
import shlex
from pathlib import Path

from runtime.command_numbers import (
    SIZE_HELP,
    port_number,
    positive_int,
    positive_seconds,
    ratio,
    size_bytes,
)
from runtime.protocol.addresses import DATA_HOST_HELP, add_data_options
from runtime.protocol.engines import ComputeDtype, Engine
from runtime.protocol.join_tokens import TOKEN_HELP
from runtime.protocol.stage_pipe import LEAVE_WITHIN_S
from runtime.protocol.trust import CA_HELP, ca_file


def agent_parser(description: str | None = None) -> argparse.ArgumentParser:
    """All options of an agent."""
    parser = argparse.ArgumentParser(prog="python -m runtime agent", description=description)
    _add_membership(parser)
    _add_data_port(parser)
    _add_machine(parser)
    _add_weights(parser)
    _add_engine(parser)
    _add_instances(parser)
    return parser


def _add_membership(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--server", required=True, help="where helixweb is, e.g. https://helix.example.org")
    add("--ca", type=ca_file, metavar="FILE", help=CA_HELP)
    add("--token", help=TOKEN_HELP)
    # Of one among several agents of a machine, which `runtime.agent.machine` starts.
    add("--machine-uuid", help=argparse.SUPPRESS)
    add("--name-suffix", default="", help=argparse.SUPPRESS)
    add("--join-only", action="store_true", help="join, then end; start again to compute")
    add("--name", help="the node's name in the cluster (default: the host's name)")
    add("--data-dir", type=Path, required=True, help="where this node keeps who it is")
    add("--region", default="local", help="the node's region (default %(default)s)")


def _add_data_port(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--data-host", default="", help=DATA_HOST_HELP)
    add(
        "--data-port",
        type=port_number,
        default=0,
        help="TCP port that coordinators and other nodes dial (default: any free one, kept for "
        "later starts)",
    )
    add_data_options(parser)


def _add_machine(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--memory",
        "--memory-budget-bytes",
        dest="memory_budget_bytes",
        type=size_bytes,
        metavar="SIZE",
        help=f"in {SIZE_HELP}; for weights and KV cache of all ranks together (default: 90 %% of "
        "each rank's GPU; without GPUs half of main memory)",
    )
    add(
        "--relative-speed",
        type=ratio,
        default=1.0,
        help="below 1: pause after each step, to act as a slower node (default %(default)s)",
    )
    add(
        "--emulate",
        type=Path,
        metavar="FILE.json",
        help="act as the node described there and run no model (see runtime/protocol/emulation.py)",
    )
    add(
        "--metrics-port",
        type=port_number,
        help="answer /metrics there, without a key and to this machine only (default: an agent "
        "listens for no HTTP; the site's /metrics has all nodes)",
    )
    add("--threads", type=positive_int, default=1, help="CPU threads (default %(default)s)")
    add(
        "--shutdown-grace",
        dest="shutdown_grace_s",
        type=positive_seconds,
        default=LEAVE_WITHIN_S,
        metavar="SECONDS",
        help="after SIGTERM: how long requests may take to go on elsewhere before the stage ends; "
        "SIGINT, or a second signal, ends it at once (default %(default)g)",
    )


def _add_weights(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--weights-dir",
        type=lambda text: Path(text).expanduser().resolve(),
        metavar="DIR",
        help="where weights that are fetched from a hub are stored (default: in --data-dir)",
    )
    add(
        "--weights-port",
        type=port_number,
        default=0,
        help="TCP port that other nodes of a deployment dial to fetch these weights, encrypted as "
        "the data port is; closed, they use the site or the hub (default: any free one)",
    )
    add(
        "--weights-quota",
        dest="weights_quota_bytes",
        type=size_bytes,
        metavar="SIZE",
        help="most that these weights may take, as for --memory; the least recently used are "
        "deleted (default: all of the disk but 5 %% or 1 GiB, whichever is less)",
    )


def _add_engine(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--engine",
        type=Engine,
        choices=tuple(Engine),
        default=Engine.AUTO,
        help="what computes layers: vllm (see `helix-agent install-engine`), helix, or auto: vLLM "
        "for quantised weights, families that are not our own, and GPUs, if it is installed "
        "(default %(default)s)",
    )
    add(
        "--compute-dtype",
        type=ComputeDtype,
        choices=tuple(ComputeDtype),
        default=ComputeDtype.AUTO,
        help="what stages compute in; auto: the model's type, or float16 for bfloat16 on GPUs of a "
        "compute capability below 8.0 (default %(default)s)",
    )
    add(
        "--decode-graphs",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="run decode steps of vLLM on a GPU as CUDA graphs; without, they took 3 to 4 times as "
        "long on an H200 (default: on)",
    )
    add(
        "--engine-python",
        type=Path,
        metavar="PYTHON",
        help="the Python of an environment with vLLM (default: what `helix-agent install-engine "
        "vllm` made)",
    )
    add(
        "--tensor-parallel",
        type=positive_int,
        help="processes that share each layer, e.g. one per GPU (default: as deployed, usually 1)",
    )


def _add_instances(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--vllm-command",
        type=_command_words,
        help="what begins the command line of `vllm serve` (default: vLLM of --engine-python, or "
        "`vllm`)",
    )
    add(
        "--vllm-args",
        type=_words,
        default=(),
        metavar="WORDS",
        help="further options of `vllm serve` on this machine, e.g. "
        "--vllm-args='--enforce-eager --max-num-seqs 8'",
    )
    add(
        "--transformers-command",
        type=_command_words,
        default="transformers",
        help="what begins the command line of `transformers serve` (default %(default)s)",
    )


def _words(text: str) -> tuple[str, ...]:
    """A part of a command line, as a shell takes it apart."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no command ({error})") from error


def _command_words(text: str) -> tuple[str, ...]:
    words = _words(text)
    if not words:
        raise argparse.ArgumentTypeError("it is empty; give the command, or leave the option out")
    return words
