"""`make demo` in a folder of its own, for measurements: site, worker, coordinator, four agents."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.web.opening import ROOT
from helixweb.demo import local_cluster
from helixweb.demo.processes import Processes, Running, free_port
from helixweb.demo.scenario import Places, Scenario, Timings, answers_ok
from helixweb.demo.site import Site, wait_until


@dataclass(slots=True, kw_only=True)
class DemoSite:
    """Up, with a plan deployed. `coordinator` changes when it is started anew."""

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
        """Of the coordinator, without a join token, which counts once."""
        words = [str(word) for word in self.coordinator.process.args]  # type: ignore[union-attr]
        return words[: words.index("--data-dir") + 2]


@contextmanager
def running_demo(folder: Path) -> Iterator[DemoSite]:
    """Until the block ends; data and logs stay in `folder`."""
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
        scenario.start_nodes(site, cluster)
        plan = scenario.ensure_plan(site, cluster)
        scenario.ensure_deployed(site, cluster, plan["id"])
        coordinator = next(run for run in processes.children if run.name == "coordinator")
        try:
            yield DemoSite(
                scenario=scenario,
                site=site,
                key=key,
                cluster=cluster,
                model=local_cluster.MODEL,
                coordinator=coordinator,
            )
        finally:
            site.close()
