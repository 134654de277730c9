"""`python -m runtime coordinator`: one process that serves clients over the deployed plan."""

import asyncio
import logging
import os
import sys
from dataclasses import replace

from runtime.coordinator.coordinator import Coordinator
from runtime.coordinator.options import Options, parse_options
from runtime.coordinator.place import take_place
from runtime.coordinator.shared_port import private_socket
from runtime.coordinator.telemetry import telemetry
from runtime.free_memory import bound_free_memory
from runtime.membership.identity import DataDir
from runtime.protocol.complaints import StartRefused
from runtime.protocol.emulation import EmulatedNetwork, read_network
from runtime.protocol.join_tokens import given_token
from runtime.protocol.logs import begin_logging
from runtime.web_client import check_server

logger = logging.getLogger(__name__)


def main(argv: list[str]) -> int:
    """0 after SIGTERM, once its requests have ended, or SIGINT, at once; 2 with one line on stderr
    for what the caller must change."""
    options = parse_options(argv)
    options = replace(options, token=given_token(options.token, os.environ))
    bound_free_memory()
    try:
        begin_logging("coordinator", level=os.environ.get("HELIX_LOG_LEVEL", "INFO").upper())
        check_server(options.server)
        network = None if options.emulate is None else read_network(options.emulate)
        data_dir = DataDir(options.data_dir)
        with data_dir.locked():
            asyncio.run(run(options, data_dir, network=network))
    except StartRefused as error:
        sys.stderr.write(f"coordinator: {error}\n")
        return 2
    return 0


async def run(options: Options, data_dir: DataDir, *, network: EmulatedNetwork | None) -> None:
    """Serve until a signal; `network` are the links to the stages, if they are emulated.

    Raises JoinRefused, Removed, and what binding raises.
    """
    if network is not None:
        logger.warning("what is sent to the stages is delayed: their links are emulated")
    with private_socket() as inner:
        place = take_place(options, data_dir, inner)
        told_of_traces = telemetry()
        try:
            await Coordinator(
                options, place, data_dir, network=network, telemetry=told_of_traces
            ).serve()
        finally:
            if told_of_traces is not None:
                await asyncio.to_thread(told_of_traces.close)
            place.transport.close()
