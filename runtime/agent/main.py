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
import signal
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path

from runtime.agent.agent import Agent, Node
from runtime.agent.gpus import (
    FoundGpu,
    claimed,
    devices_of,
    find_gpus,
    groups_of,
)
from runtime.agent.instance_specs import InstanceSettings
from runtime.agent.machine import at_end_of_stdin, is_one_node, node_agents, run_agents
from runtime.agent.node_log import NodeLog, NodeLogHandler
from runtime.agent.options import agent_parser
from runtime.agent.supervisor import STAGE_COMMAND, StageSettings
from runtime.agent.vllm_environment import find_python, vllm_command
from runtime.agent.vllm_facts import VllmFacts
from runtime.agent.weight_server import WeightServer
from runtime.checkpoints.engine_fit import offers_of
from runtime.checkpoints.weight_store import WeightStore
from runtime.membership.data_address import choose_host, choose_port, data_endpoint
from runtime.membership.hardware import detect_hardware, emulated_hardware, gpu_budgets_bytes
from runtime.membership.identity import Applicant, DataDir, Identity, JoinRefused, Membership, join
from runtime.metrics_port import metrics_port
from runtime.platforms import CUDA_ORDER, on_signals
from runtime.protocol.complaints import StartRefused
from runtime.protocol.control import AgentIdentity, Hardware, Role
from runtime.protocol.emulation import read_emulation
from runtime.protocol.engines import AUTOMATIC, EngineSettings
from runtime.protocol.join_tokens import given_token
from runtime.protocol.logs import begin_logging
from runtime.protocol.reach import weights_endpoint
from runtime.protocol.weight_access import WeightAccess
from runtime.tasks import unless
from runtime.transport.zmq_sockets import KeyPair
from runtime.web_client import WebClient, check_server

logger = logging.getLogger(__name__)


def main(argv: list[str]) -> int:
    """Run until told to stop; returns the exit status."""
    options = agent_parser(__doc__).parse_args(argv)
    options.token = given_token(options.token, os.environ)
    try:
        begin_logging("agent")
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
    except StartRefused as error:
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
    """Join, then be the agent until a signal. Raises what `main` catches."""
    stopped, hurry = _signalled(options)
    keys = data_dir.load_keys()
    host, identity = _data_port(options, data_dir)
    port = identity.data_port or 0
    machine = _machine(options, gpus, facts_file=data_dir.vllm_facts)
    endpoint = data_endpoint(host, port, options.advertise)
    announcement = AgentIdentity(
        hardware=machine.hardware,
        data_endpoint=endpoint,
        data_public_key=keys.public_key,
        version=_version(),
    )
    rng = random.SystemRandom()
    async with WebClient(options.server, ca=options.ca, rng=rng) as web:
        applicant = _applicant(options, announcement)
        joined = await unless(stopped, join(web, data_dir, identity, applicant, rng=rng))
        if joined is None and options.join_only:
            raise JoinRefused("stopped before this machine joined; run the same again")
        if joined is None or options.join_only:
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
        server = None if options.emulate else _weight_server(options, host, keys, weights)
        member = joined.member
        agent = Agent(
            web,
            Node(joined=joined, announcement=announcement, data_dir=data_dir, log=node_log),
            stages=_stage_settings(
                options, machine, weights, bind=data_endpoint(host, port), keys=keys, member=member
            ),
            instances=_instance_settings(options, machine, gpus, host=host),
            rng=rng,
            weights=server,
            vllm_facts=machine.unknown_facts,
        )
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


def _signalled(options: argparse.Namespace) -> tuple[asyncio.Event, asyncio.Event]:
    """Set when a signal asks to end, and when one asks to end at once."""
    stopped, hurry = asyncio.Event(), asyncio.Event()

    def end(number: int) -> None:
        if number == signal.SIGINT or stopped.is_set():
            hurry.set()
        stopped.set()

    on_signals((signal.SIGTERM, signal.SIGINT), end)
    if options.machine_uuid is not None:
        at_end_of_stdin(partial(end, signal.SIGTERM))
    return stopped, hurry


def _data_port(options: argparse.Namespace, data_dir: DataDir) -> tuple[str, Identity]:
    """The host to receive at, and this process's identity with its port, which is saved.

    Raises AddressError and DataDirError.
    """
    identity = data_dir.load_identity(fresh_uuid=str(uuid.uuid4()))
    host = choose_host(options.data_host, server=options.server, advertised=options.advertise)
    port = choose_port(host, wanted=options.data_port, kept=identity.data_port)
    identity = identity.model_copy(update={"data_port": port})
    data_dir.save_identity(identity)
    return host, identity


@dataclass(frozen=True, slots=True, kw_only=True)
class _Machine:
    """What this agent has to compute with. `unknown_facts`: vLLM is still to be asked."""

    hardware: Hardware
    stage_command: tuple[str, ...] = STAGE_COMMAND
    gpu_budgets_bytes: tuple[int, ...] = ()
    engine: EngineSettings = AUTOMATIC
    unknown_facts: VllmFacts | None = None


def _machine(
    options: argparse.Namespace, gpus: Sequence[FoundGpu], *, facts_file: Path
) -> _Machine:
    if options.emulate is not None:
        return _Machine(
            hardware=emulated_hardware(read_emulation(options.emulate)),
            stage_command=(*STAGE_COMMAND, "--emulate", str(options.emulate.resolve())),
        )
    engine = EngineSettings(
        engine=options.engine,
        compute_dtype=options.compute_dtype,
        python=find_python(options.engine_python),
        has_gpu=bool(gpus),
        decode_graphs=options.decode_graphs,
    )
    facts = None
    if engine.python:
        facts = VllmFacts(python=engine.python, gpus=[gpu.name for gpu in gpus], file=facts_file)
        engine = engine.model_copy(update={"vllm": facts.kept()})
    hardware = detect_hardware(
        memory_budget_bytes=options.memory_budget_bytes,
        relative_speed=options.relative_speed,
        gpus=[gpu.announced for gpu in gpus],
    ).model_copy(update={"engines": offers_of(engine), "engine": engine.engine})
    is_given = options.memory_budget_bytes is not None
    return _Machine(
        hardware=hardware,
        gpu_budgets_bytes=() if is_given else gpu_budgets_bytes(hardware.gpus),
        engine=engine,
        unknown_facts=facts if engine.vllm is None else None,
    )


def _applicant(options: argparse.Namespace, announcement: AgentIdentity) -> Applicant:
    return Applicant(
        role=Role.NODE,
        name=options.name,
        name_suffix=options.name_suffix,
        machine_uuid=options.machine_uuid,
        region=options.region,
        join_token=options.token,
        announcement=announcement,
    )


def _stage_settings(
    options: argparse.Namespace,
    machine: _Machine,
    weights: WeightAccess,
    *,
    bind: str,
    keys: KeyPair,
    member: Membership,
) -> StageSettings:
    return StageSettings(
        name=member.name,
        bind=bind,
        secret_key_file=weights.secret_key_file,
        public_key=keys.public_key,
        memory_budget_bytes=machine.hardware.memory_budget_bytes,
        relative_speed=machine.hardware.relative_speed,
        threads=options.threads,
        tensor_parallel=options.tensor_parallel,
        data_security=options.data_security,
        gpu_budgets_bytes=machine.gpu_budgets_bytes,
        leave_within_s=options.shutdown_grace_s,
        weights=weights,
        engine=machine.engine,
        command=machine.stage_command,
    )


def _instance_settings(
    options: argparse.Namespace, machine: _Machine, gpus: Sequence[FoundGpu], *, host: str
) -> InstanceSettings:
    hardware = machine.hardware
    return InstanceSettings(
        host=host,
        memory_budget_bytes=hardware.memory_budget_bytes,
        gpus=devices_of(gpus),
        gpu_budgets_bytes=machine.gpu_budgets_bytes,
        relative_speed=hardware.relative_speed,
        threads=options.threads,
        emulated=options.emulate is not None,
        vllm_command=options.vllm_command or vllm_command(machine.engine.python),
        vllm_arguments=options.vllm_args,
        memory_bytes=tuple(gpu.announced.memory_bytes for gpu in gpus) or (hardware.memory_bytes,),
        transformers_command=options.transformers_command,
    )


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
