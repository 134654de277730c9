"""The demo's site, coordinator and four agents, as `make demo` starts them, and a plan at work."""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helixweb.demo.processes import Processes, free_port
from helixweb.demo.scenario import Places, Scenario, Timings
from helixweb.demo.site import Site


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoCluster:
    """`key` opens the coordinator; `plan` is deployed and ready."""

    scenario: Scenario
    site: Site
    key: str
    cluster_id: int
    plan: dict[str, Any]


@contextmanager
def running_demo(
    *, options_of: Callable[[str], Sequence[str]] = lambda node: ()
) -> Iterator[DemoCluster]:
    """Everything ends with the block. `options_of` gives more options of the agent of a node."""
    with tempfile.TemporaryDirectory(prefix="demo-", ignore_cleanup_errors=True) as folder:
        places = Places(
            data_dir=Path(folder),
            models_dir=Path.cwd() / "var" / "models",  # the demo's, made once
            web_port=free_port(),
            coordinator_port=free_port(),
        )
        with Processes(
            log_dir=places.data_dir / "logs", cwd=Path.cwd(), env={**os.environ, **places.env}
        ) as processes:
            scenario = Scenario(places, processes, Timings())
            checkpoint = scenario.make_checkpoint()
            scenario.start_web()
            scenario.login_link()
            site, key = scenario.connect()
            try:
                cluster_id = scenario.ensure_cluster(site, checkpoint)
                scenario.start_nodes(site, cluster_id, options_of=options_of)
                plan = scenario.ensure_plan(site, cluster_id)
                scenario.ensure_deployed(site, cluster_id, plan["id"])
                yield DemoCluster(
                    scenario=scenario, site=site, key=key, cluster_id=cluster_id, plan=plan
                )
            finally:
                site.close()
