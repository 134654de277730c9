"""The whole product over shaped links: is a link that gets slow named, and do requests avoid it?

    python -m benchmarks.slow_links.site_links [--repeats 3] [--folder DIR]

Site, worker and coordinator in one namespace, three agents in others, all joined by links of
100 Mb/s and 30 ms. They run a real model of few and wide layers, so that a prompt's rows fill the
links: the first node sends half of the requests to each of two others. Under load one of these
links is cut to 40 Mb/s and later given back. Printed is how long after each change the site's API
(what the Network and Monitor pages show) had the rate within a tenth, named the link, and routed by
other weights. The plan is told that nodes are faster than links, which 40 Mb/s make true enough.
Needs root. Exit code 1: a request was lost, or something took longer than wanted.
"""

import argparse
import ctypes
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.slow_links.start import start
from benchmarks.web.chatting import Chatters
from benchmarks.web.opening import ROOT
from helixweb.demo.processes import Processes, free_port
from helixweb.demo.scenario import WORKER_COMMAND, answers_ok
from helixweb.demo.site import Site, wait_until
from helixweb.operations.asking import answers
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from tests.shaped_links.network import RelayedLink, Side, relayed_mesh
from tests.shaped_links.shaped_pipe import Shape

_SITE: Side = "d"
_NODES: dict[str, Side] = {"first": "a", "second-1": "b", "second-2": "c"}
_SLOWED = ("first", "second-1")
_MODEL = "wide"
_NEAR = 0.1
_CLONE_NEWNET = 0x40000000


@dataclass(slots=True, kw_only=True)
class World:
    """Up, with the plan deployed."""

    link: RelayedLink
    site: Site
    key: str
    cluster: int
    deployment: int
    coordinator_url: str

    def slowed_link(self) -> dict[str, Any]:
        """What the API tells of the link that is cut; empty before anything was sent over it."""
        for row in self.links()["links"]:
            if (row["source"], row["target"]) == _SLOWED:
                return dict(row)
        return {}

    def links(self) -> dict[str, Any]:
        return dict(self.site.get(f"deployments/{self.deployment}/links/"))

    def is_near(self, rate_bytes_per_s: float) -> bool:
        measured = float(self.slowed_link().get("measured_bytes_per_s") or 0.0)
        return abs(measured - rate_bytes_per_s) <= _NEAR * rate_bytes_per_s

    def follows(self) -> bool:
        """Requests are routed by weights for what the link does, and fewer take it."""
        weights = self.links()["weights"]
        if weights is None or not weights["counts"]:
            return False
        share = weights["routing_weights"][_SLOWED[0]]
        return bool(share[_SLOWED[1]] < share["second-2"])

    def is_named(self) -> bool:
        subject = " → ".join(_SLOWED)
        return bool(self.site.get(f"clusters/{self.cluster}/bottleneck/")["subject"] == subject)


def enter(namespace: str) -> None:
    """This process and its children see that namespace's network alone from now on."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{namespace}") as inside:
        if libc.setns(inside.fileno(), _CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"setns({namespace}): {os.strerror(number)}")


def run(folder: Path, parameters: dict[str, Any], link: RelayedLink, *, repeats: int) -> bool:
    """Whether all went as wanted."""
    enter(link.names[_SITE])
    web_port, chat_port = free_port(), free_port()
    url = f"http://{link.address(_SITE)}:{web_port}"
    env = {
        "HELIX_DATA_DIR": str(folder / "web"), "HELIX_URL": url, "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1", "DATABASE_URL": "", "REDIS_URL": "",
    }  # fmt: skip
    with Processes(log_dir=folder / "logs", cwd=ROOT, env=env) as processes:
        world = _start(processes, folder, parameters, link, url=url, chat_port=chat_port)
        try:
            return all([_cut_and_give_back(world, parameters) for _ in range(repeats)])
        finally:
            world.site.close()


def _start(
    processes: Processes,
    folder: Path,
    parameters: dict[str, Any],
    link: RelayedLink,
    *,
    url: str,
    chat_port: int,
) -> World:
    sizes = TinySizes(**parameters["model"])
    make_tiny_checkpoint(folder / "checkpoint", sizes=sizes, seed=1)
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
        "apikey", [*manage, "apikey", "benchmark", "links", "--scopes", "read,write,serve"]
    ).strip()
    site = Site(url, api_key=key)
    document = _problem(sizes, parameters)
    cluster = int(site.post("clusters/import/", {"problem": document})["id"])
    (model,) = site.results("models/")
    limits = {"max_context_tokens": sizes.max_position_embeddings}
    site.patch(f"models/{model['id']}/", {"checkpoint": str(folder / "checkpoint"), **limits})

    def join(role: str, name: str, side: Side, *options: str) -> None:
        token = site.post("join-tokens/", {"cluster": cluster, "role": role})["secret"]
        kind = "agent" if role == "node" else role
        processes.start(
            name,
            ["ip", "netns", "exec", link.names[side], sys.executable, "-m", "runtime", kind,
             "--server", url, "--name", name, "--region", "here", "--token", token,
             "--data-dir", str(folder / "nodes" / name), "--data-host", link.address(side),
             *options],
        )  # fmt: skip

    join("coordinator", "coordinator", _SITE, "--host", host, "--port", str(chat_port))
    for name, side in _NODES.items():
        join("node", name, side, "--memory-budget-bytes", str(parameters["memory_bytes"]))

    def all_online() -> bool:
        rows = [row for kind in ("nodes/", "coordinators/") for row in site.results(kind)]
        names = {row["name"] for row in rows if row["state"] == "online"}
        return names == {*_NODES, "coordinator"}

    _wait(processes, "coordinator and nodes are online", all_online)
    plan = _plan(processes, site, cluster, model["id"], half=sizes.num_layers // 2)
    deployment = site.post("deployments/", {"plan": plan, "max_batch_tokens": 128})["id"]
    chat = f"http://{host}:{chat_port}"
    _wait(processes, "the coordinator serves", lambda: answers_ok(chat))
    return World(
        link=link, site=site, key=key, cluster=cluster, deployment=deployment, coordinator_url=chat
    )


def _plan(processes: Processes, site: Site, cluster: int, model: int, *, half: int) -> int:
    """The first half of the layers on one node, the second on each of the others."""
    second = {"first": half, "end": 2 * half}
    pinned = {name: second for name in _NODES} | {"first": {"first": 0, "end": half}}
    options = {"objective": "flow", "time_limit_s": 2, "rules": {"pinned": pinned}}
    run_id = site.post("plan-runs/", {"cluster": cluster, "model": model, "options": options})["id"]

    def status() -> str:
        return str(site.get(f"plan-runs/{run_id}/")["status"])

    _wait(processes, "the plan is there", lambda: status() not in ("queued", "running"))
    found = site.get(f"plan-runs/{run_id}/")
    if found["plan"] is None:
        raise SystemExit(f"no plan: {found['error']}")
    return int(found["plan"])


def _problem(sizes: TinySizes, parameters: dict[str, Any]) -> dict[str, Any]:
    layers = range(1, sizes.num_layers // 2 + 1)
    one_layer = parameters["tokens_per_s_of_a_layer"]
    link = {
        "bandwidth_bytes_per_s": parameters["rate_bytes_per_s"],
        "latency_s": parameters["delay_s"],
    }
    return {
        "format": "helixweb.problem/1",
        "name": "links",
        "source": "benchmarks/slow_links/site_links.py",
        "model": {
            "name": _MODEL,
            "num_layers": sizes.num_layers,
            "activation_bytes_per_token": 4 * sizes.hidden_size,
            "token_bytes": 4,
            "bytes_per_layer": parameters["memory_bytes"] / 20,
        },
        "workload": {
            "mean_prompt_tokens": parameters["prompt_tokens"],
            "mean_output_tokens": parameters["output_tokens"],
        },
        "compute_profiles": {
            "cpu": {
                "gpu": "CPU",
                "vram_bytes": parameters["memory_bytes"],
                "max_layers": len(layers),
                "tokens_per_s": [one_layer / held for held in layers],
                "kv_capacity_token_layers": [1e5 for _ in layers],
            }
        },
        "nodes": [{"name": name, "region": "here", "compute_profile": "cpu"} for name in _NODES],
        "coordinator": {"region": "here"},
        "network": {"region_pairs": [{"source": "here", "target": "here", **link}], "links": []},
    }


def _cut_and_give_back(world: World, parameters: dict[str, Any]) -> bool:
    fast, slow = parameters["rate_bytes_per_s"], parameters["cut_bytes_per_s"]
    wanted = {"rate": 5.0, "named": 10.0, "weights": 10.0}
    direction = f"{_NODES[_SLOWED[0]]}_to_{_NODES[_SLOWED[1]]}"
    with Chatters(
        world.coordinator_url,
        key=world.key,
        model=_MODEL,
        streams=parameters["streams"],
        max_tokens=parameters["output_tokens"],
        prompt_words=parameters["prompt_words"],
    ) as chatters:
        time.sleep(parameters["calm_s"])
        print(f"calm: {_told(world)}", flush=True)
        world.link.change(**{direction: {"rate_bytes_per_s": slow}})
        down = _times(
            {"rate": lambda: world.is_near(slow), "named": world.is_named, "weights": world.follows}
        )
        print(f"to {8e-6 * slow:.0f} Mb/s: {_words(down)}; {_told(world)}", flush=True)
        time.sleep(parameters["calm_s"])
        world.link.change(**{direction: {"rate_bytes_per_s": fast}})
        up = _times(
            {
                "rate": lambda: world.is_near(fast),
                "named": lambda: not world.is_named(),
                "weights": lambda: not world.follows(),
            }
        )
        print(f"to {8e-6 * fast:.0f} Mb/s: {_words(up)}; {_told(world)}", flush=True)
    print(f"{chatters.answers} answers, {chatters.refused} requests lost", flush=True)
    within = all(
        took is not None and took <= wanted[name]
        for times in (down, up)
        for name, took in times.items()
    )
    return within and chatters.refused == 0


def _times(
    conditions: dict[str, Callable[[], bool]], *, give_up_s: float = 60.0
) -> dict[str, float | None]:
    """Seconds until each was true for the first time; None: not in time."""
    began, took = time.monotonic(), dict.fromkeys(conditions, None) | {}
    while (passed_s := time.monotonic() - began) < give_up_s and None in took.values():
        for name, holds in conditions.items():
            if took[name] is None and holds():
                took[name] = passed_s
        time.sleep(0.2)
    return took


def _words(times: dict[str, float | None]) -> str:
    return ", ".join(
        f"{name} " + ("never" if took is None else f"after {took:.1f} s")
        for name, took in times.items()
    )


def _told(world: World) -> str:
    rate = world.slowed_link().get("measured_bytes_per_s") or 0.0
    finding = world.site.get(f"clusters/{world.cluster}/bottleneck/")
    return f"told {8e-6 * rate:.0f} Mb/s, {finding['headline']}"


def _wait(processes: Processes, what: str, ready: Callable[[], bool]) -> None:
    wait_until(what, ready, timeout_s=90, check_alive=processes.check_alive)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="keeps data and logs")
    arguments, whole = start(parser, list(argv))
    parameters = whole["site_links"]
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="helixweb-links-"))
    print(f"data and logs: {folder}", flush=True)
    shape = Shape(
        rate_bytes_per_s=parameters["rate_bytes_per_s"],
        delay_s=parameters["delay_s"],
        queue_bytes=parameters["queue_bytes"],
    )
    with relayed_mesh(4, shape, congestion_control=parameters["congestion_control"]) as link:
        return 0 if run(folder, parameters, link, repeats=arguments.repeats) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
