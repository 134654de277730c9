"""`python -m runtime agent`: make this machine a node of a cluster.

The first start needs the join command of the cluster's page; later ones need --data-dir only, and
--server if it moved. SIGTERM means leave: requests go on elsewhere before the stage ends. Exit
status 2: it was started wrongly or the node was removed.
"""

import argparse
import asyncio
import logging
import os
import random
import shlex
import signal
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import metadata
from pathlib import Path

from runtime.agent.agent import Agent, NodeRemoved
from runtime.agent.gpus import (
    FoundGpu,
    GpuInUse,
    claimed,
    devices_of,
    find_gpus,
    groups_of,
)
from runtime.agent.instance_specs import InstanceSettings
from runtime.agent.machine import at_end_of_stdin, is_one_node, node_agents, run_agents
from runtime.agent.node_log import NodeLog, NodeLogHandler
from runtime.agent.supervisor import STAGE_COMMAND, StageSettings
from runtime.agent.vllm_environment import find_python, vllm_command
from runtime.agent.vllm_facts import VllmFacts
from runtime.agent.weight_server import WeightServer
from runtime.checkpoints.engine_fit import offers_of
from runtime.checkpoints.weight_store import WeightStore
from runtime.command_numbers import (
    SIZE_HELP,
    port_number,
    positive_int,
    positive_seconds,
    ratio,
    size_bytes,
)
from runtime.http_process import CannotListen
from runtime.membership.data_address import AddressError, choose_host, choose_port, data_endpoint
from runtime.membership.hardware import detect_hardware, emulated_hardware, gpu_budgets_bytes
from runtime.membership.identity import DataDir, DataDirError
from runtime.membership.joining import Applicant, JoinRefused, join
from runtime.metrics_port import metrics_port
from runtime.platforms import CUDA_ORDER, on_signals
from runtime.protocol.addresses import ADVERTISE_HELP, DATA_HOST_HELP, advertised
from runtime.protocol.control import AgentIdentity, Role
from runtime.protocol.data_security import DataSecurity
from runtime.protocol.emulation import EmulationRefused, read_emulation
from runtime.protocol.engines import AUTOMATIC, ComputeDtype, Engine, EngineSettings
from runtime.protocol.join_tokens import TOKEN_HELP, given_token
from runtime.protocol.logs import UnknownFormat, begin_logging
from runtime.protocol.reach import weights_endpoint
from runtime.protocol.stage_pipe import LEAVE_WITHIN_S
from runtime.protocol.trust import CA_HELP, ca_file
from runtime.protocol.weight_access import WeightAccess
from runtime.transport.keys import KeyFileError, KeyPair
from runtime.transport.zmq_sockets import BindFailed
from runtime.web_client import BadServerAddress, WebClient, check_server

logger = logging.getLogger(__name__)


def main(argv: list[str]) -> int:
    """Run until told to stop; returns the exit status."""
    options = _parser().parse_args(argv)
    options.token = given_token(options.token, os.environ)
    try:
        begin_logging(
            "agent",
            level=logging.INFO,
            line_format="%(asctime)s %(levelname)s %(name)s %(message)s",
        )
        logging.getLogger("httpx").setLevel(logging.WARNING)  # a line per heartbeat otherwise
        check_server(options.server)
        options.data_dir = options.data_dir.expanduser()
        data_dir = DataDir(options.data_dir)
        os.environ.update(CUDA_ORDER)  # for all that is started from here
        gpus = find_gpus(os.environ) if options.emulate is None else ()
        groups = groups_of(gpus, tensor_parallel=options.tensor_parallel)
        with data_dir.locked():
            if not is_one_node(options.data_dir, groups):
                agents = node_agents(argv, options, groups)
                return asyncio.run(run_agents(agents, must_all_end_well=options.join_only))
            shared = options.memory_budget_bytes is not None
            with claimed(gpus, shared=shared), _heard_by(node_log := NodeLog()):
                asyncio.run(_run(options, data_dir, node_log, gpus))
    except (
        AddressError,
        BadServerAddress,
        BindFailed,
        CannotListen,
        DataDirError,
        EmulationRefused,
        GpuInUse,
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


async def _run(
    options: argparse.Namespace, data_dir: DataDir, node_log: NodeLog, gpus: Sequence[FoundGpu]
) -> None:
    stopped, hurry = asyncio.Event(), asyncio.Event()

    def end(number: int) -> None:
        if number == signal.SIGINT or stopped.is_set():
            hurry.set()
        stopped.set()

    on_signals((signal.SIGTERM, signal.SIGINT), end)
    if options.machine_uuid is not None:
        at_end_of_stdin(partial(end, signal.SIGTERM))
    keys = KeyPair.load_or_create(data_dir.key_file)
    identity = data_dir.load_identity(fresh_uuid=str(uuid.uuid4()))
    host = choose_host(options.data_host, server=options.server, advertised=options.advertise)
    port = choose_port(host, wanted=options.data_port, kept=identity.data_port)
    identity = identity.model_copy(update={"data_port": port})
    data_dir.save_identity(identity)
    gpu_budgets: tuple[int, ...] = ()
    engine, facts = AUTOMATIC, None
    if options.emulate is None:
        engine = EngineSettings(
            engine=options.engine,
            compute_dtype=options.compute_dtype,
            python=find_python(options.engine_python),
            has_gpu=bool(gpus),
            decode_graphs=options.decode_graphs,
        )
        if engine.python:
            names = [gpu.name for gpu in gpus]
            facts = VllmFacts(python=engine.python, gpus=names, file=data_dir.vllm_facts)
            engine = engine.model_copy(update={"vllm": facts.kept()})
        stage_command: tuple[str, ...] = STAGE_COMMAND
        hardware = detect_hardware(
            memory_budget_bytes=options.memory_budget_bytes,
            relative_speed=options.relative_speed,
            gpus=[gpu.announced for gpu in gpus],
        ).model_copy(update={"engines": offers_of(engine), "engine": engine.engine})
        if options.memory_budget_bytes is None:
            gpu_budgets = gpu_budgets_bytes(hardware.gpus)
    else:
        stage_command = (*STAGE_COMMAND, "--emulate", str(options.emulate.resolve()))
        hardware = emulated_hardware(read_emulation(options.emulate))
    bound, endpoint = data_endpoint(host, port), data_endpoint(host, port, options.advertise)
    announcement = AgentIdentity(
        hardware=hardware,
        data_endpoint=endpoint,
        data_public_key=keys.public_key,
        version=_version(),
    )
    applicant = Applicant(
        role=Role.NODE,
        name=options.name,
        name_suffix=options.name_suffix,
        machine_uuid=options.machine_uuid,
        region=options.region,
        join_token=options.token,
        announcement=announcement,
    )
    rng = random.SystemRandom()
    async with WebClient(options.server, ca=options.ca, rng=rng) as web:
        joining = asyncio.create_task(join(web, data_dir, identity, applicant, rng=rng))
        stopping = asyncio.create_task(stopped.wait())
        await asyncio.wait((joining, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not joining.done():
            joining.cancel()
            if options.join_only:
                raise JoinRefused("stopped before this machine joined; run the same again")
            return
        joined = joining.result()
        if options.join_only:
            return
        weights = WeightAccess(
            directory=str(options.weights_dir or data_dir.weights.resolve()),
            quota_bytes=options.weights_quota_bytes,
            site=options.server,
            credential=joined.member.credential,
            ca=str(options.ca or ""),
            secret_key_file=str(data_dir.key_file.resolve()),
            security=options.data_security,
        )
        server = (
            None if options.emulate is not None else _weight_server(options, host, keys, weights)
        )
        agent = Agent(
            web=web,
            joined=joined,
            announcement=announcement,
            data_dir=data_dir,
            node_log=node_log,
            settings=StageSettings(
                name=joined.member.name,
                bind=bound,
                secret_key_file=str(data_dir.key_file),
                public_key=keys.public_key,
                memory_budget_bytes=hardware.memory_budget_bytes,
                relative_speed=hardware.relative_speed,
                threads=options.threads,
                tensor_parallel=options.tensor_parallel,
                data_security=options.data_security,
                gpu_budgets_bytes=gpu_budgets,
                leave_within_s=options.shutdown_grace_s,
                weights=weights,
                engine=engine,
            ),
            instance_settings=InstanceSettings(
                host=host,
                memory_budget_bytes=hardware.memory_budget_bytes,
                gpus=devices_of(gpus),
                gpu_budgets_bytes=gpu_budgets,
                relative_speed=hardware.relative_speed,
                threads=options.threads,
                emulated=options.emulate is not None,
                vllm_command=options.vllm_command or vllm_command(engine.python),
                vllm_arguments=options.vllm_args,
                memory_bytes=(
                    tuple(gpu.announced.memory_bytes for gpu in gpus) or (hardware.memory_bytes,)
                ),
                transformers_command=options.transformers_command,
            ),
            rng=rng,
            weights=server,
            stage_command=stage_command,
            vllm_facts=None if engine.vllm is not None else facts,
        )
        member = joined.member
        places = endpoint
        if server is not None:
            places += f", for weights at {weights_endpoint(endpoint, server.port)}"
        logger.info(
            "%s of cluster %s is up; others dial it at %s", member.name, member.cluster, places
        )
        try:
            async with metrics_port(options.metrics_port, agent.metrics):
                await agent.run(stopped, hurry=hurry)
        finally:
            if server is not None:
                server.close()


def _weight_server(
    options: argparse.Namespace, host: str, keys: KeyPair, access: WeightAccess
) -> WeightServer:
    """Raises AddressError and BindFailed."""
    return WeightServer(
        port=choose_port(host, wanted=options.weights_port, kept=None),
        host=host,
        keys=keys,
        security=options.data_security,
        store=WeightStore(path=Path(access.directory), quota_bytes=access.quota_bytes),
    )


def _version() -> str:
    try:
        return metadata.version("helixweb")
    except metadata.PackageNotFoundError:
        return "not installed"


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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m runtime agent", description=__doc__)
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
    add("--data-host", default="", help=DATA_HOST_HELP)
    add(
        "--data-port",
        type=port_number,
        default=0,
        help="TCP port that coordinators and other nodes dial (default: any free one, kept for "
        "later starts)",
    )
    add("--advertise", type=advertised, metavar="HOST[:PORT]", help=ADVERTISE_HELP)
    add(
        "--data-security",
        type=DataSecurity,
        choices=tuple(DataSecurity),
        default=DataSecurity.CURVE,
        help="clear: data frames without encryption, on trusted networks faster than 1 Gb/s; the "
        "same for all agents and the coordinator (default %(default)s)",
    )
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
        "deleted (default: 95 %% of the disk)",
    )
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
    add(
        "--tensor-parallel",
        type=positive_int,
        help="processes that share each layer, e.g. one per GPU (default: as deployed, usually 1)",
    )
    return parser
