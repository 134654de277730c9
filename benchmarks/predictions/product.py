"""The whole product over shaped links, its nodes measured, a plan computed and deployed."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.slow_links.site_links import enter
from benchmarks.web.opening import ROOT
from helixweb.demo.local_cluster import TINY, problem
from helixweb.demo.processes import Processes, free_port
from helixweb.demo.scenario import WORKER_COMMAND, answers_ok
from helixweb.demo.site import Site, wait_until
from helixweb.operations.asking import answers
from runtime.models.config import read_config
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.profiler.main import model_numbers
from tests.shaped_links.network import RelayedLink, Side

# The coordinator and the site are where the tower is; the other nodes are alone.
_SITE: Side = "a"
_SIDES: dict[str, Side] = {"tower": "a", "desktop": "b", "laptop": "c", "mini": "d"}
_LOOPBACK = {"bandwidth_bytes_per_s": 1.25e9, "latency_s": 1e-4}
_WAIT_S = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """Up, with the plan deployed. `measurements` are what the agents found, by node."""

    site: Site
    key: str
    cluster: int
    model: str
    vocabulary: int
    coordinator_url: str
    problem: dict[str, Any]
    plan: dict[str, Any]
    measurements: dict[str, Any]
    deployment: int

    def node_stats(self) -> dict[str, dict[str, Any]]:
        """What stages told last, by node."""
        rows = self.site.get(f"deployments/{self.deployment}/")["assignments"]
        return {row["node_name"]: row["stats"] for row in rows if row["stats"]}

    def page_figures(self) -> list[dict[str, Any]]:
        """What the deployment's page says now of predicted and measured."""
        page = self.site.get(f"deployments/{self.deployment}/predictions/")
        return list(page["figures"])


@contextmanager
def product(folder: Path, parameters: dict[str, Any], link: RelayedLink) -> Iterator[Product]:
    """Everything runs inside; this process stays in the namespace of the site."""
    enter(link.names[_SITE])
    web_port, chat_port = free_port(), free_port()
    url = f"http://{link.address(_SITE)}:{web_port}"
    env = {
        "HELIX_DATA_DIR": str(folder / "web"), "HELIX_URL": url, "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1", "DATABASE_URL": "", "REDIS_URL": "",
    }  # fmt: skip
    with Processes(log_dir=folder / "logs", cwd=ROOT, env=env) as processes:
        site, key = _site(processes, url)
        try:
            yield _deployed(
                processes, site, url, key, folder, parameters, link, chat_port=chat_port
            )
        finally:
            site.close()


def _site(processes: Processes, url: str) -> tuple[Site, str]:
    manage = [sys.executable, "manage.py"]
    processes.run("migrate", [*manage, "migrate", "--no-input"])
    host, port = url.removeprefix("http://").split(":")
    processes.start(
        "web",
        [sys.executable, "-m", "uvicorn", "helixweb.asgi:application", "--host", host,
         "--port", port, "--log-level", "warning", "--timeout-graceful-shutdown", "2"],
    )  # fmt: skip
    processes.start("worker", WORKER_COMMAND)
    _wait(processes, "the site answers", lambda: answers(f"{url}/readyz"))
    processes.run("loginlink", [*manage, "loginlink", "benchmark"])
    key = processes.run(
        "apikey", [*manage, "apikey", "benchmark", "predictions", "--scopes", "read,write,serve"]
    ).strip()
    return Site(url, api_key=key), key


def _deployed(
    processes: Processes,
    site: Site,
    url: str,
    key: str,
    folder: Path,
    parameters: dict[str, Any],
    link: RelayedLink,
    *,
    chat_port: int,
) -> Product:
    sizes = TinySizes(**parameters["model"])
    make_tiny_checkpoint(folder / "checkpoint", sizes=sizes, seed=1)
    document = _problem(folder / "checkpoint", parameters)
    cluster = int(site.post("clusters/import/", {"problem": document})["id"])
    (model,) = site.results("models/")
    limits = {"max_context_tokens": sizes.max_position_embeddings}
    site.patch(f"models/{model['id']}/", {"checkpoint": str(folder / "checkpoint"), **limits})
    _join(processes, site, url, folder, parameters, link, cluster=cluster, chat_port=chat_port)
    measurements = {
        node.name: _measured(processes, site, cluster, model["id"], node.name)
        for node in TINY.nodes
    }
    plan = _plan(processes, site, cluster, model["id"])
    deployment = site.post("deployments/", {"plan": plan["id"]})["id"]
    chat = f"http://{link.address(_SITE)}:{chat_port}"
    _wait(processes, "the coordinator serves", lambda: answers_ok(chat))
    return Product(
        site=site,
        key=key,
        cluster=cluster,
        model=model["name"],
        vocabulary=sizes.vocab_size,
        coordinator_url=chat,
        problem=site.get(f"clusters/{cluster}/problem/"),
        plan=plan["document"],
        measurements=measurements,
        deployment=deployment,
    )


def _problem(checkpoint: Path, parameters: dict[str, Any]) -> dict[str, Any]:
    """With profiles that stand in until the agents have measured."""
    stand_in = {
        "gpu": "CPU", "max_layers": 1, "tokens_per_s": [1.0], "kv_capacity_token_layers": [1e3],
    }  # fmt: skip
    profiles = {
        node.name: stand_in | {"vram_bytes": float(node.memory_bytes)} for node in TINY.nodes
    }
    model = model_numbers(TINY.name, read_config(checkpoint))
    document = problem(TINY, {"model": model, "compute_profiles": profiles})
    network, load = parameters["network"], parameters["load"]
    far = {
        "bandwidth_bytes_per_s": network["rate_bytes_per_s"],
        "latency_s": network["delay_s"],
    }
    region = document["coordinator"]["region"]
    near = [("coordinator", "tower"), ("tower", "coordinator")]
    return document | {
        "workload": {
            "mean_prompt_tokens": load["prompt_tokens"],
            "mean_output_tokens": load["output_tokens"],
        },
        "network": {
            "region_pairs": [{"source": region, "target": region, **far}],
            "links": [{"source": a, "target": b, **_LOOPBACK} for a, b in near],
        },
    }


def _join(
    processes: Processes,
    site: Site,
    url: str,
    folder: Path,
    parameters: dict[str, Any],
    link: RelayedLink,
    *,
    cluster: int,
    chat_port: int,
) -> None:
    region = site.get(f"clusters/{cluster}/")["coordinator_region"]

    def join(role: str, name: str, side: Side, *options: str) -> None:
        token = site.post("join-tokens/", {"cluster": cluster, "role": role})["secret"]
        kind = "agent" if role == "node" else role
        processes.start(
            name,
            ["ip", "netns", "exec", link.names[side], sys.executable, "-m", "runtime", kind,
             "--server", url, "--name", name, "--region", region, "--token", token,
             "--data-dir", str(folder / "nodes" / name), "--data-host", link.address(side),
             *options],
        )  # fmt: skip

    host = link.address(_SITE)
    join("coordinator", "coordinator", _SITE, "--host", host, "--port", str(chat_port))
    scale = parameters["nodes"]["speed_scale"]
    for node in TINY.nodes:
        join(
            "node", node.name, _SIDES[node.name],
            "--memory-budget-bytes", str(node.memory_bytes),
            "--relative-speed", f"{scale * node.relative_speed:g}",
        )  # fmt: skip

    def all_online() -> bool:
        rows = [row for kind in ("nodes/", "coordinators/") for row in site.results(kind)]
        names = {row["name"] for row in rows if row["state"] == "online"}
        return names == {*_SIDES, "coordinator"}

    _wait(processes, "coordinator and nodes are online", all_online)


def _measured(
    processes: Processes, site: Site, cluster: int, model: int, name: str
) -> dict[str, Any]:
    """Have the agent measure its node; what it found."""
    (node,) = site.results("nodes/", cluster=cluster, name=name)
    order = site.post("profilings/", {"node": node["id"], "model": model})["id"]

    def ended() -> bool:
        return site.get(f"profilings/{order}/")["ended_at"] is not None

    _wait(processes, f"{name} is measured", ended)
    row = site.get(f"profilings/{order}/")
    if row["version"] is None:
        raise SystemExit(f"{name} was not measured: {row['message']}")
    version: dict[str, Any] = site.get(f"profile-versions/{row['version']}/")
    fit = version["evidence"]["decode_fit"]
    print(
        f"{name}: measured in {version['evidence']['seconds']:.0f} s, decodes off by "
        f"{fit['median_error']:.1%} in the median",
        flush=True,
    )
    return version


def _plan(processes: Processes, site: Site, cluster: int, model: int) -> dict[str, Any]:
    """As the demo asks for it: for the flow, so that pipelines share a node."""
    options = {"objective": "flow", "time_limit_s": 10}
    run_id = site.post("plan-runs/", {"cluster": cluster, "model": model, "options": options})["id"]

    def status() -> str:
        return str(site.get(f"plan-runs/{run_id}/")["status"])

    _wait(processes, "the plan is there", lambda: status() not in ("queued", "running"))
    found = site.get(f"plan-runs/{run_id}/")
    if found["plan"] is None:
        raise SystemExit(f"no plan: {found['error']}")
    return dict(site.get(f"plans/{found['plan']}/"))


def _wait(processes: Processes, what: str, ready: Callable[[], bool]) -> None:
    wait_until(what, ready, timeout_s=_WAIT_S, check_alive=processes.check_alive)
