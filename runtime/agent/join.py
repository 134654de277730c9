"""`helix-agent join URL --token T`: the shortest way to make this machine a node of a cluster.

The same agent as `python -m runtime agent`, with a default data directory. Started again it needs
no token. With --service it joins, then runs as a systemd unit that starts at boot.
Every option of `python -m runtime agent` may follow.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from runtime.agent import main as agent
from runtime.agent import service
from runtime.agent.gpus import Vendor, find_gpus
from runtime.agent.vllm_environment import SYSTEM_DIR, has_pins, install, user_dir
from runtime.command_numbers import SIZE_HELP, size_bytes
from runtime.protocol.engines import VLLM_VERSION
from runtime.protocol.home import home_folder
from runtime.protocol.join_tokens import TOKEN_HELP
from runtime.protocol.trust import CA_HELP, ca_file
from runtime.thread_failure import exit_when_a_thread_fails


def main(argv: Sequence[str] | None = None) -> int:
    """Run until told to stop; returns the exit status (2: it was started wrongly)."""
    known, rest = _parser().parse_known_args(argv)
    exit_when_a_thread_fails()
    if known.command == "install-engine":
        return _install_engine(rest)
    if known.service:
        return _run_as_service(known, rest, environ=os.environ)
    return agent.main(agent_options(known, rest, environ=os.environ))


def _run_as_service(
    known: argparse.Namespace, rest: Sequence[str], *, environ: Mapping[str, str]
) -> int:
    """Join first, so that a refused token is seen here; the unit has no token."""
    try:
        service.check_systemd()
        if service.is_root():
            if known.data_dir is not None:
                raise service.ServiceRefused(
                    f"as root, --service keeps its state in {service.STATE_DIR}; leave --data-dir "
                    f"{known.data_dir} out"
                )
            known.data_dir = service.STATE_DIR
        was_running = service.stop_running()
        status = agent.main([*agent_options(known, rest, environ=environ), "--join-only"])
        if status != 0:
            if was_running:
                service.start_again()
            return status
        known.token = None
        if known.ca is not None:  # the unit's user may not read where it is now
            known.ca = service.keep_certificates(known.ca, data_dir_of(known, environ))
        _server, *words = agent_options(known, rest, environ=environ)
        sys.stdout.write(service.install(words, environ=environ) + "\n")
    except service.ServiceRefused as refused:
        sys.stderr.write(f"helix-agent: {refused}\n")
        return 2
    return 0


def _install_engine(pip_arguments: Sequence[str]) -> int:
    folder = SYSTEM_DIR if service.is_root() else user_dir(os.environ)
    gpus = find_gpus(os.environ)
    if any(gpu.vendor is not Vendor.NVIDIA for gpu in gpus):
        sys.stderr.write(
            f"helix-agent: {gpus[0].name} needs a build of vLLM for ROCm, which no package index "
            f"has; make an environment with vLLM {VLLM_VERSION} by hand, and give its Python to "
            "the agent by --engine-python\n"
        )
        return 2
    try:
        install(folder, has_gpu=bool(gpus), is_pinned=has_pins(), arguments=pip_arguments)
    except (subprocess.CalledProcessError, OSError) as error:
        sys.stderr.write(
            f"helix-agent: vLLM is not installed: {error}; what pip says is above. Run the same "
            "again, or make an environment by hand and give it to the agent by --engine-python\n"
        )
        return 2
    sys.stdout.write(
        f"vLLM {VLLM_VERSION} is installed at {folder}; restart this machine's agents\n"
    )
    return 0


def agent_options(
    known: argparse.Namespace, rest: Sequence[str], *, environ: Mapping[str, str]
) -> list[str]:
    """The options of `python -m runtime agent` that `join` stands for."""
    options = ["--server", known.url, "--data-dir", str(data_dir_of(known, environ))]
    for name in ("ca", "token", "name", "region"):
        if (value := getattr(known, name)) is not None:
            options += [f"--{name}", str(value)]
    if known.memory_budget_bytes is not None:
        options += ["--memory", str(known.memory_budget_bytes)]
    return [*options, *rest]


def data_dir_of(known: argparse.Namespace, environ: Mapping[str, str]) -> Path:
    """Where this agent keeps who it is, as an absolute path."""
    folder: Path = known.data_dir or default_data_dir(environ)
    return folder.expanduser().absolute()


def default_data_dir(environ: Mapping[str, str]) -> Path:
    """Where this user's agent keeps who it is."""
    base = environ.get("XDG_STATE_HOME") or str(home_folder() / ".local" / "state")
    return Path(base) / "helix-agent"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="helix-agent", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    join = commands.add_parser(
        "join",
        help="make this machine a node of a cluster",
        epilog="Every option of `python -m runtime agent` may follow; see its --help.",
    )
    join.add_argument("url", metavar="URL", help="where helixweb is, e.g. https://helix.example")
    join.add_argument("--ca", type=ca_file, metavar="FILE", help=CA_HELP)
    join.add_argument("--token", help=TOKEN_HELP)
    join.add_argument("--name", help="the node's name (default: the host's name)")
    join.add_argument(
        "--service",
        action="store_true",
        help="run as a systemd unit that starts at boot: for root one of the system, else one of "
        "the user",
    )
    join.add_argument("--data-dir", type=Path, help="where this node keeps who it is")
    join.add_argument("--region", help="the node's region (default: local)")
    join.add_argument(
        "--memory",
        "--memory-budget-bytes",
        dest="memory_budget_bytes",
        type=size_bytes,
        metavar="SIZE",
        help=f"what a stage may use of memory, in {SIZE_HELP} (default: 90 %% of each GPU, without "
        "GPUs half of main memory)",
    )
    engine = commands.add_parser(
        "install-engine",
        help="install vLLM for the stages of this machine",
        epilog="Options of `pip install` may follow, such as --extra-index-url.",
    )
    engine.add_argument("engine", choices=("vllm",), help="the engine to install")
    return parser


if __name__ == "__main__":
    sys.exit(main())
