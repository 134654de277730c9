"""Reads tensors from the stores of other nodes, whose agents serve them (`agent.weight_server`).

The site names the agents of the deployment. Links are those of the data plane (CURVE, or in clear).
"""

import json
import logging
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import zmq
from pydantic import ValidationError

from runtime.checkpoints.hub import http_client
from runtime.checkpoints.hub_names import HubError, weight_sources
from runtime.checkpoints.peer_stores import (
    OpenPeers,
    PeerLost,
    PeerStores,
    no_peers,
)
from runtime.protocol.control import PeerAddress
from runtime.protocol.weight_access import (
    PEERS_PATH,
    WeightAccess,
    WeightPeers,
    WeightReply,
    WeightRequest,
)
from runtime.transport.zmq_sockets import KeyPair, sending_socket

logger = logging.getLogger(__name__)

_ASK_SITE_S = 5.0
_OFFER_WITHIN_S = 3.0  # all peers together
_SILENT_S = 5.0  # a peer that sends nothing for so long is lost
_PIECE_BYTES = 1 << 20
_MOST_ASKED = 4  # pieces on their way
_MOST_WAITING = 64  # requests, before a link is up
_MOST_LISTING_BYTES = 64 << 20
_MOST_SMALL_BYTES = 100_000_000


def peers_of(access: WeightAccess | None) -> OpenPeers:
    """Those that the site names when a repository is opened; none without a site or a key."""
    if access is None or not access.site or not access.secret_key_file:
        return no_peers

    @contextmanager
    def open_peers(repository: str, commit: str) -> Iterator[PeerStores]:
        found = _ask_site(access)
        with zmq.Context() as context:
            keys = KeyPair.load(Path(access.secret_key_file))
            links = {
                peer.name: _Link(
                    sending_socket(
                        context,
                        peer,
                        keys=keys,
                        security=access.security,
                        most_waiting=_MOST_WAITING,
                    ),
                    peer.endpoint,
                )
                for peer in found
            }
            try:
                yield LinkedStores(links, repository, commit)
            finally:
                for link in links.values():
                    link.close()

    return open_peers


class LinkedStores(PeerStores):
    """Asks other nodes' agents for weights; a fetch calls it.

    The stores at the other ends of `links`, for one commit of a repository.
    """

    def __init__(self, links: "dict[str, _Link]", repository: str, commit: str) -> None:
        self._links = links
        self._repository = repository
        self._commit = commit
        self._listings: dict[str, Mapping[str, int]] | None = None

    @property
    def are_there(self) -> bool:
        """See `PeerStores`."""
        return bool(self._links)

    def look_again(self) -> None:
        """See `PeerStores`."""
        self._listings = self._list_all()

    def offers(self, names: Collection[str]) -> Mapping[str, tuple[str, int]]:
        """See `PeerStores`."""
        if self._listings is None:
            self._listings = self._list_all()
        found: dict[str, tuple[str, int]] = {}
        for node, listing in self._listings.items():
            for name in listing.keys() & names - found.keys():
                found[name] = node, listing[name]
        return found

    def read(self, file: str) -> bytes | None:
        """See `PeerStores`."""
        if self._listings is None:
            self._listings = self._list_all()  # leaves those that do not answer, all at once
        for node, link in list(self._links.items()):
            try:
                link.ask(self._request(file))
                reply, _ = link.hear()
                size = reply.file_bytes
                if size is not None and size <= _MOST_SMALL_BYTES:
                    return b"".join(self.stream(node, file, size))
            except PeerLost as error:
                logger.info("not from node %s: %s", node, error)
                self.leave(node)
        return None

    def stream(self, node: str, file: str, file_bytes: int) -> Iterator[bytes]:
        """See `PeerStores`."""
        link = self._links[node]
        asked = at = 0
        while at < file_bytes:
            while asked < min(file_bytes, at + _MOST_ASKED * _PIECE_BYTES):
                end = min(file_bytes, asked + _PIECE_BYTES)
                link.ask(self._request(file, begin=asked, end=end))
                asked = end
            reply, data = link.hear()
            if reply.file_bytes != file_bytes or len(data) != min(_PIECE_BYTES, file_bytes - at):
                raise PeerLost(f"{file[:80]} is not there as it was offered")
            at += len(data)
            yield data

    def leave(self, node: str) -> None:
        """See `PeerStores`."""
        if self._listings is not None:
            self._listings.pop(node, None)
        link = self._links.pop(node, None)
        if link is not None:
            link.close()

    def _request(self, file: str, *, begin: int = 0, end: int = 0) -> WeightRequest:
        return WeightRequest(
            number=0,
            repository=self._repository,
            commit=self._commit,
            file=file,
            begin=begin,
            end=end,
        )

    def _list_all(self) -> dict[str, Mapping[str, int]]:
        """Ask all peers at once; those that do not answer in time are asked nothing more."""
        until_s = time.monotonic() + _OFFER_WITHIN_S
        for link in self._links.values():
            link.ask(self._request(""))
        listings = {}
        for node, link in list(self._links.items()):
            try:
                _, data = link.hear(within_s=max(0.0, until_s - time.monotonic()))
                listings[node] = _read_listing(data)
            except PeerLost as error:
                logger.warning(
                    "no weights from node %s: %s; check that a firewall lets this machine dial %s",
                    node, error, link.endpoint,
                )  # fmt: skip
                self.leave(node)
        return listings


class _Link:
    """One peer's agent. Replies come in the order of the requests."""

    def __init__(self, socket: Any, endpoint: str) -> None:
        self.endpoint = endpoint
        self._socket = socket
        self._asked: list[int] = []  # numbers of requests that are not answered
        self._number = 0
        socket.connect(endpoint)

    def ask(self, request: WeightRequest) -> None:
        """Send it, unless too much waits already: then no reply comes."""
        self._number += 1
        request = request.model_copy(update={"number": self._number})
        with suppress(zmq.Again):
            self._socket.send(request.model_dump_json().encode(), zmq.NOBLOCK)
        self._asked.append(self._number)

    def hear(self, *, within_s: float | None = None) -> tuple[WeightReply, bytes]:
        """The next reply and its bytes. Raises PeerLost."""
        wanted = self._asked.pop(0)
        within_s = _SILENT_S if within_s is None else within_s
        until_s = time.monotonic() + within_s
        while self._socket.poll(max(0, int(1000 * (until_s - time.monotonic())))):
            frames = self._socket.recv_multipart()
            try:
                reply = WeightReply.model_validate_json(frames[0])
            except ValidationError as error:
                raise PeerLost(f"it answers what is no reply: {error}") from error
            if reply.number == wanted and len(frames) == 2:
                return reply, frames[1]
        raise PeerLost("it did not answer in time")

    def close(self) -> None:
        self._socket.close(linger=0)


def _read_listing(data: bytes) -> Mapping[str, int]:
    """Raises PeerLost."""
    try:
        listing = json.loads(data[:_MOST_LISTING_BYTES])
    except ValueError as error:
        raise PeerLost(f"its listing is not JSON: {error}") from error
    # Not by pydantic, which makes an error of each wrong value: of a hostile node millions.
    if not isinstance(listing, dict) or not all(
        type(size) is int and size > 0 for size in listing.values()
    ):
        raise PeerLost("its listing does not give bytes by tensor")
    return listing


def _ask_site(access: WeightAccess) -> tuple[PeerAddress, ...]:
    """Agents that may have weights; none while the site does not say."""
    try:
        with http_client(weight_sources(access)[0], timeout_s=_ASK_SITE_S) as client:
            answer = client.get(access.site.rstrip("/") + PEERS_PATH)
        answer.raise_for_status()
        return WeightPeers.model_validate_json(answer.content).peers
    except (httpx.HTTPError, httpx.InvalidURL, HubError, ValidationError) as error:
        logger.info("the site does not say which nodes have weights: %s", error)
        return ()
