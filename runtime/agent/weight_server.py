"""Serves the weights in this node's store to the other nodes of its deployment.

They dial it with the keys of the data plane. A request names a repository and a commit; anything
but the checkpoint of the deployment that this node runs is refused.
"""

import json
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import zmq
from pydantic import ValidationError

from runtime.checkpoints.hub_names import parse_hub_name
from runtime.checkpoints.weight_places import LISTING, SMALL_FILES
from runtime.checkpoints.weight_store import WeightStore
from runtime.membership.data_address import data_endpoint
from runtime.protocol.control import StageAssignment
from runtime.protocol.data_security import DataSecurity
from runtime.protocol.weight_access import WeightReply, WeightRequest
from runtime.transport.zmq_sockets import KeyPair, Peers, RetryingAuthenticator, receiving_socket

_SUFFIXES = (".safetensors", ".header")
_MOST_BYTES = 4 << 20  # of one reply
_MOST_WAITING = 16  # replies to one peer


class WeightServer:
    """Owns the port that other nodes fetch weights from; the agent makes and closes it.

    Answers from `store` at a port of this machine, by a thread, until `close`.

    No request is answered before `serve`.
    """

    def __init__(
        self, *, host: str, port: int, keys: KeyPair, security: DataSecurity, store: WeightStore
    ) -> None:
        """Raises BindFailed."""
        self.port = port
        self._store = store
        self._checkpoint = ""
        self._peers = Peers((), public_key=keys.public_key)
        self._context = zmq.Context()
        self._authenticator = RetryingAuthenticator(self._context)
        self._authenticator.start()
        self._authenticator.admit(self._peers)
        try:
            self._router = receiving_socket(
                self._context,
                bind=data_endpoint(host, port),
                keys=keys,
                security=security,
                most_waiting=_MOST_WAITING,
            )
        except BaseException:
            self.close()
            raise
        threading.Thread(target=self._run, daemon=True, name="weights").start()

    def serve(self, assignment: StageAssignment | None) -> None:
        """Answer the peers of this deployment about its checkpoint from now on, and no others."""
        self._checkpoint = "" if assignment is None else assignment.checkpoint
        self._peers.replace(() if assignment is None else assignment.peers)

    def close(self) -> None:
        """Release the port."""
        self._authenticator.stop()
        self._context.term()  # ends the thread

    def _run(self) -> None:
        with self._router as router, suppress(zmq.ContextTerminated):
            while True:
                frames = router.recv_multipart(copy=False)
                reply = self._reply(frames)
                if reply is not None:
                    router.send_multipart([frames[0].bytes, *reply])

    def _reply(self, frames: Sequence[Any]) -> tuple[bytes, bytes] | None:
        """None for what is no request, or of a peer that has left since its handshake."""
        if self._peers.name_of_key.get(str(frames[-1].get("User-Id"))) is None or len(frames) != 2:
            return None
        try:
            request = WeightRequest.model_validate_json(frames[1].bytes)
        except ValidationError:
            return None
        try:
            size, data = self._read(request)
        except (OSError, ValueError):  # not there, deleted meanwhile, or no name of a file
            size, data = None, b""
        return WeightReply(number=request.number, file_bytes=size).model_dump_json().encode(), data

    def _read(self, request: WeightRequest) -> tuple[int | None, bytes]:
        """Raises OSError, and ValueError for a name with a NUL."""
        if not self._is_served(request):
            return None, b""
        folder = self._store.folder(request.repository, request.commit)
        if not request.file:
            listing = json.dumps(folder.tensor_bytes()).encode()
            return len(listing), listing
        with (folder.path / request.file).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(request.begin)
            return size, file.read(max(0, min(request.end - request.begin, _MOST_BYTES)))

    def _is_served(self, request: WeightRequest) -> bool:
        name = parse_hub_name(self._checkpoint)
        repository = self._checkpoint.strip("/") if name is None else name.repository
        if not repository or request.repository != repository:
            return False
        if name is not None and name.is_pinned and request.commit != name.revision:
            return False
        file = Path(request.file)
        return not request.file or (
            file.name == request.file
            and (request.file in (LISTING, *SMALL_FILES) or file.suffix in _SUFFIXES)
        )
