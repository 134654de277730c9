"""`make demo` in a folder of its own, for measurements: site, worker, coordinator, four agents."""

import json
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.web.opening import ROOT
from helixweb.demo import local_cluster
from helixweb.demo.processes import Processes, Running, free_port
from helixweb.demo.scenario import Places, Scenario, Timings, answers_ok
from helixweb.demo.site import Site, wait_until
from planner.serialization import problem_from_dict
from planner.timing import layer_times_of

HEARTBEAT_S = 2.0


@dataclass(slots=True, kw_only=True)
class DemoSite:
    """Up, with a plan deployed. `coordinator` changes when it is restarted."""

    scenario: Scenario
    site: Site
    key: str
    cluster: int
    model: str
    coordinator: Running

    @property
    def coordinator_url(self) -> str:
        return self.scenario.places.coordinator_url

    def stage(self, node: str) -> psutil.Process:
        """The process that runs that node's layers."""
        agent = psutil.Process(self.scenario.nodes[node].process.pid)
        children = agent.children(recursive=True)
        stages = [child for child in children if "stage" in child.cmdline()]
        if len(stages) != 1:
            raise SystemExit(f"the agent of {node} has {len(stages)} stages; its log says why")
        return stages[0]

    def restart_coordinator(self, *options: str) -> None:
        """With more options; returns when it has heard from every stage."""
        command = [*self.command, *options]
        self.scenario.processes.stop(self.coordinator)
        self.coordinator = self.scenario.processes.start("coordinator", command)
        wait_until(
            "the coordinator serves", lambda: answers_ok(self.coordinator_url), timeout_s=60,
            check_alive=self.scenario.processes.check_alive,
        )  # fmt: skip

    @property
    def command(self) -> list[str]:
        """Of the coordinator, without the options of a restart."""
        words = [str(word) for word in self.coordinator.process.args]  # type: ignore[union-attr]
        return words[: words.index("--data-dir") + 2]

    def slow_down(self, node: str, factor: float) -> None:
        """Have an emulated node take that many times as long; its stage is restarted."""
        file = _emulation_file(self.scenario.places.data_dir, node)
        emulation = json.loads(file.read_text())
        emulation["time_scale"] *= factor
        file.write_text(json.dumps(emulation))
        stage = self.stage(node)
        stage.terminate()
        wait_until(
            "the stage is gone", lambda: not stage.is_running(), timeout_s=30,
            check_alive=self.scenario.processes.check_alive,
        )  # fmt: skip
        time.sleep(2 * HEARTBEAT_S)  # until then the site knows its old stage only
        wait_until(
            "it serves again", lambda: self._is_ready(node), timeout_s=60,
            check_alive=self.scenario.processes.check_alive,
        )  # fmt: skip

    def _is_ready(self, node: str) -> bool:
        finding = self.site.get(f"clusters/{self.cluster}/bottleneck/")
        is_heard = (finding["limit"], finding["subject"]) != ("silent node", node)
        return is_heard and answers_ok(self.coordinator_url)


@contextmanager
def running_demo(folder: Path, *, time_scale: float | None = None) -> Iterator[DemoSite]:
    """Until the block ends; data and logs stay in `folder`.

    With a `time_scale` the nodes run no model but take their times from the demo's profiles, that
    many times as long: a busy machine hardly disturbs them.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):  # else its processes would be left behind
        signal.signal(number, _interrupt)
    places = Places(
        data_dir=folder,
        models_dir=ROOT / "var" / "models",
        web_port=free_port(),
        coordinator_port=free_port(),
    )
    env = {**places.env, "DATABASE_URL": "", "REDIS_URL": ""}
    with Processes(log_dir=folder / "logs", cwd=ROOT, env=env) as processes:
        scenario = Scenario(places, processes, Timings())
        checkpoint = scenario.make_checkpoint()
        scenario.start_web()
        scenario.login_link()
        site, key = scenario.connect()
        cluster = scenario.ensure_cluster(site, checkpoint)
        options_of: dict[str, list[str]] = defaultdict(list)
        if time_scale is not None:
            for node, emulation in _emulations(site, cluster, checkpoint, time_scale).items():
                file = _emulation_file(folder, node)
                file.write_text(json.dumps(emulation))
                options_of[node] = ["--emulate", str(file)]
        scenario.start_nodes(site, cluster, options_of=options_of.__getitem__)
        plan = scenario.ensure_plan(site, cluster)
        scenario.ensure_deployed(site, cluster, plan["id"])
        coordinator = next(run for run in processes.children if run.name == "coordinator")
        try:
            yield DemoSite(
                scenario=scenario,
                site=site,
                key=key,
                cluster=cluster,
                model=local_cluster.TINY.name,
                coordinator=coordinator,
            )
        finally:
            site.close()


def _interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt


def _emulation_file(folder: Path, node: str) -> Path:
    return folder / f"emulated-{node}.json"


def _emulations(
    site: Site, cluster: int, checkpoint: Path, time_scale: float
) -> dict[str, dict[str, Any]]:
    """By node, as `runtime.protocol.emulation` has them."""
    vocab_size = json.loads((checkpoint / "config.json").read_text())["vocab_size"]
    document = site.get(f"clusters/{cluster}/problem/")
    problem = problem_from_dict(document)
    emulations = {}
    for node in problem.cluster.nodes:
        times = layer_times_of(problem, node.name)
        profile = document["compute_profiles"][node.compute_profile] | {
            "name": node.compute_profile,
            "layer_times": {"prompt": times.prompt, "decode": times.decode},
        }
        emulations[node.name] = {
            "profile": profile,
            "model": document["model"],
            "vocab_size": vocab_size,
            "time_scale": time_scale,
        }
    return emulations
