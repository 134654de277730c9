"""Agents and a coordinator that only speak: they join over HTTP and do at once what is wanted."""

import socket
import threading
import uuid
from typing import Any

import httpx

from runtime.protocol.phases import Phase
from tests.helixweb.process_doubles import HARDWARE, REPORT, STATS

_INTERVAL_S = 0.5


class JoinedDoubles:
    """A context manager; `names` are nodes of the cluster, which gets a coordinator too."""

    def __init__(self, url: str, *, tokens: dict[str, str]) -> None:
        """`tokens` by name; that of "coordinator" is the coordinator's."""
        self.generations: dict[str, int] = {}
        self._http = httpx.Client(base_url=f"{url}/api/v1/", timeout=120)
        self._credentials: dict[str, str] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._live, name="doubles")
        # Real agents try the data ports of those that have joined.
        self._ports = [socket.create_server(("127.0.0.1", 0)) for _ in tokens]
        for listener, (name, token) in zip(self._ports, tokens.items(), strict=True):
            self._join(name, token, port=listener.getsockname()[1])

    def __enter__(self) -> "JoinedDoubles":
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._closing.set()
        self._thread.join()
        self._http.close()
        for listener in self._ports:
            listener.close()

    def _join(self, name: str, token: str, *, port: int) -> None:
        is_node = name != "coordinator"
        content: dict[str, Any] = {
            "join_token": token,
            "role": "node" if is_node else "coordinator",
            "node_uuid": str(uuid.uuid4()),
            "name": name,
            "hardware": HARDWARE,
            "data_endpoint": f"tcp://127.0.0.1:{port}",
            "data_public_key": f"{name:k<40}"[:40],
            "version": "0.1.0",
        }
        if not is_node:
            content["http_url"] = "http://127.0.0.1:9"
        answer = self._http.post("agent/register", json=content)
        assert answer.status_code == 201, answer.text
        self._credentials[name] = answer.json()["credential"]

    def _live(self) -> None:
        while not self._closing.wait(_INTERVAL_S):
            for name in self._credentials:
                try:
                    if name == "coordinator":
                        self._report()
                    else:
                        self._beat(name)
                except httpx.TransportError:
                    break  # the web is away; all come again

    def _wanted(self, kind: str, headers: dict[str, str]) -> dict[str, Any] | None:
        """None: the web did not say."""
        desired = self._http.get(f"{kind}/desired", headers=headers)
        return desired.json() if desired.status_code == httpx.codes.OK else None

    def _beat(self, name: str) -> None:
        headers = {"Authorization": f"Bearer {self._credentials[name]}"}
        wanted = self._wanted("agent", headers)
        if wanted is None:
            return
        observed: dict[str, Any] = {"generation": wanted["generation"], "phase": Phase.IDLE.value}
        if wanted["assignment"] is not None:
            observed |= {"phase": Phase.READY.value, "stage": STATS.model_dump(mode="json")}
        told = self._http.post("agent/heartbeat", json={"observed": observed}, headers=headers)
        if told.status_code == httpx.codes.OK:
            before = self.generations.get(name, 0)
            assert wanted["generation"] >= before, f"{name}: {wanted['generation']} after {before}"
            self.generations[name] = wanted["generation"]

    def _report(self) -> None:
        headers = {"Authorization": f"Bearer {self._credentials['coordinator']}"}
        wanted = self._wanted("coordinator", headers)
        if wanted is not None:
            serves = {"generation": wanted["generation"], "serving": wanted["plan"] is not None}
            report = REPORT.model_copy(update=serves).model_dump(mode="json")
            self._http.post("coordinator/report", json=report, headers=headers)
