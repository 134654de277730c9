"""`python -m runtime agent`: make this machine a node of a cluster.

The first start needs the join command of the cluster's page; later ones need --data-dir only, and
--server if it moved. SIGTERM means leave: requests go on elsewhere before the stage ends. Exit
status 2: it was started wrongly or the node was removed.
"""

import argparse
import asyncio
import logging
import random
import shlex
import signal
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from runtime.agent.agent import Agent, NodeRemoved
from runtime.agent.data_address import AddressError, choose_port, data_endpoint
from runtime.agent.hardware import detect_hardware, emulated_hardware, gpu_budgets_bytes
from runtime.agent.identity import DataDir, DataDirError
from runtime.agent.instance_specs import InstanceSettings
from runtime.agent.joining import Applicant, JoinRefused, join
from runtime.agent.node_log import NodeLog, NodeLogHandler
from runtime.agent.supervisor import STAGE_COMMAND, StageSettings
from runtime.command_numbers import port_number, positive_int, positive_seconds, ratio
from runtime.http_process import CannotListen
from runtime.metrics_port import metrics_port
from runtime.platforms import on_signals
from runtime.protocol.control import AgentIdentity, Role
from runtime.protocol.data_security import DataSecurity
from runtime.protocol.emulation import EmulationRefused, read_emulation
from runtime.protocol.logs import UnknownFormat, begin_logging
from runtime.protocol.stage_pipe import LEAVE_WITHIN_S
from runtime.transport.keys import KeyFileError, KeyPair
from runtime.web_client import BadServerAddress, WebClient, check_server

logger = logging.getLogger(__name__)


def main(argv: list[str]) -> int:
    """Run until told to stop; returns the exit status."""
    options = _parser().parse_args(argv)
    try:
        begin_logging(
            "agent",
            level=logging.INFO,
            line_format="%(asctime)s %(levelname)s %(name)s %(message)s",
        )
        logging.getLogger("httpx").setLevel(logging.WARNING)  # a line per heartbeat otherwise
        check_server(options.server)
        data_dir = DataDir(options.data_dir.expanduser())
        with data_dir.locked(), _heard_by(node_log := NodeLog()):
            asyncio.run(_run(options, data_dir, node_log))
    except (
        AddressError,
        BadServerAddress,
        CannotListen,
        DataDirError,
        EmulationRefused,
        JoinRefused,
        KeyFileError,
        NodeRemoved,
        UnknownFormat,
    ) as error:
        print(f"agent: {error}", file=sys.stderr)
        return 2
    return 0


@contextmanager
def _heard_by(node_log: NodeLog) -> Iterator[None]:
    """While inside, it gets all that this process logs."""
    handler = NodeLogHandler(node_log)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


async def _run(options: argparse.Namespace, data_dir: DataDir, node_log: NodeLog) -> None:
    stopped, hurry = asyncio.Event(), asyncio.Event()

    def end(number: int) -> None:
        if number == signal.SIGINT or stopped.is_set():
            hurry.set()
        stopped.set()

    on_signals((signal.SIGTERM, signal.SIGINT), end)
    keys = KeyPair.load_or_create(data_dir.key_file)
    identity = data_dir.load_identity(fresh_uuid=str(uuid.uuid4()))
    port = choose_port(options.data_host, wanted=options.data_port, kept=identity.data_port)
    identity = identity.model_copy(update={"data_port": port})
    data_dir.save_identity(identity)
    gpu_budgets: tuple[int, ...] = ()
    if options.emulate is None:
        stage_command: tuple[str, ...] = STAGE_COMMAND
        hardware = detect_hardware(
            memory_budget_bytes=options.memory_budget_bytes, relative_speed=options.relative_speed
        )
        if options.memory_budget_bytes is None:
            gpu_budgets = gpu_budgets_bytes(hardware.gpus)
    else:
        stage_command = (*STAGE_COMMAND, "--emulate", str(options.emulate.resolve()))
        hardware = emulated_hardware(read_emulation(options.emulate))
    endpoint = data_endpoint(options.data_host, port)
    announcement = AgentIdentity(
        hardware=hardware,
        data_endpoint=endpoint,
        data_public_key=keys.public_key,
        version=_version(),
    )
    applicant = Applicant(
        role=Role.NODE,
        name=options.name,
        region=options.region,
        join_token=options.token,
        announcement=announcement,
    )
    rng = random.SystemRandom()
    async with WebClient(options.server, rng=rng) as web:
        joining = asyncio.create_task(join(web, data_dir, identity, applicant, rng=rng))
        stopping = asyncio.create_task(stopped.wait())
        await asyncio.wait((joining, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not joining.done():
            joining.cancel()
            return
        joined = joining.result()
        agent = Agent(
            web=web,
            joined=joined,
            announcement=announcement,
            data_dir=data_dir,
            node_log=node_log,
            settings=StageSettings(
                name=joined.member.name,
                bind=endpoint,
                secret_key_file=str(data_dir.key_file),
                public_key=keys.public_key,
                memory_budget_bytes=hardware.memory_budget_bytes,
                relative_speed=hardware.relative_speed,
                threads=options.threads,
                tensor_parallel=options.tensor_parallel,
                data_security=options.data_security,
                gpu_budgets_bytes=gpu_budgets,
                leave_within_s=options.shutdown_grace_s,
            ),
            instance_settings=InstanceSettings(
                host=options.data_host,
                memory_budget_bytes=hardware.memory_budget_bytes,
                gpus=len(hardware.gpus),
                gpu_budgets_bytes=gpu_budgets,
                relative_speed=hardware.relative_speed,
                threads=options.threads,
                emulated=options.emulate is not None,
                vllm_command=options.vllm_command,
                transformers_command=options.transformers_command,
            ),
            rng=rng,
            stage_command=stage_command,
        )
        logger.info("%s of cluster %s is up", joined.member.name, joined.member.cluster)
        async with metrics_port(options.metrics_port, agent.metrics):
            await agent.run(stopped, hurry=hurry)


def _version() -> str:
    try:
        return metadata.version("helixweb")
    except metadata.PackageNotFoundError:
        return "not installed"


def _command_words(text: str) -> tuple[str, ...]:
    """What begins a command line, as a shell takes it apart."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no command ({error})") from error
    if not words:
        raise argparse.ArgumentTypeError("it is empty; give the command, or leave the option out")
    return words


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m runtime agent", description=__doc__)
    add = parser.add_argument
    add("--server", required=True, help="where helixweb is, e.g. https://helix.example.org")
    add("--token", help="one-time join token hlxj_…; needed at the first start only")
    add("--name", help="the node's name in the cluster; needed at the first start only")
    add("--data-dir", type=Path, required=True, help="where this node keeps who it is")
    add("--region", default="local", help="the node's region (default %(default)s)")
    add(
        "--data-host",
        default="127.0.0.1",
        help="this machine's IP address as other nodes dial it (default %(default)s)",
    )
    add("--data-port", type=port_number, default=0, help="0: any free one, kept for later starts")
    add(
        "--data-security",
        type=DataSecurity,
        choices=tuple(DataSecurity),
        default=DataSecurity.CURVE,
        help="clear: data frames without encryption, on trusted networks faster than 1 Gb/s; the "
        "same for all agents and the coordinator (default %(default)s)",
    )
    add(
        "--memory-budget-bytes",
        type=positive_int,
        help="for weights and KV cache of all ranks together (default: 90 %% of each rank's GPU; "
        "without GPUs half of main memory)",
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
        "listens for no HTTP; the site's /metrics tells of all nodes)",
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
    add(
        "--vllm-command",
        type=_command_words,
        default="vllm",
        help="what begins the command line of `vllm serve` (default %(default)s)",
    )
    add(
        "--transformers-command",
        type=_command_words,
        default="transformers",
        help="what begins the command line of `transformers serve` (default %(default)s)",
    )
    add(
        "--tensor-parallel",
        type=positive_int,
        help="processes that share each layer, e.g. one per GPU (default: as deployed, usually 1)",
    )
    return parser
