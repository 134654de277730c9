"""A site of its own for tests in a browser, and worlds of rows in it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from helixweb.demo.processes import Processes, Running, free_port
from helixweb.demo.scenario import WORKER_COMMAND, Places, Scenario, Timings, web_command
from helixweb.demo.site import wait_until
from helixweb.operations.asking import answers
from tests.e2e import blank_database
from tests.e2e.in_site import run_in_site
from tests.programs import NO_SERVICES, ROOT
from tests.waiting import PATIENCE_S


@contextmanager
def scenario_in(
    folder: Path, models: Path, database: Path | None, **services: str
) -> Iterator[Scenario]:
    """A site of which nothing is started yet, with a copy of `database`, or with `services`."""
    places = Places(
        data_dir=folder, models_dir=models, web_port=free_port(), coordinator_port=free_port()
    )
    env = {**places.env, **NO_SERVICES, **services}
    if database is not None:
        blank_database.put(database, Path(env["HELIX_DATA_DIR"]))
    with Processes(log_dir=folder / "logs", cwd=ROOT, env=env) as processes:
        yield Scenario(places, processes, Timings())


def children_with(parent: Running | psutil.Process, words: str) -> list[psutil.Process]:
    """Its children whose commands have these words."""
    found = []
    if isinstance(parent, Running):
        parent = psutil.Process(parent.process.pid)
    for child in parent.children():
        with suppress(
            psutil.NoSuchProcess
        ):  # one that has ended, whether its result was read or not
            if words in " ".join(child.cmdline()):
                found.append(child)
    return found


class BrowsedSite:
    """A web process on loopback with a database of its own."""

    def __init__(self, processes: Processes, places: Places) -> None:
        self._processes = processes
        self.env = {**places.env, **NO_SERVICES}
        self.url = places.web_url

    @classmethod
    @contextmanager
    def started(cls, folder: Path, database: Path, **environment: str) -> Iterator["BrowsedSite"]:
        """Empty, a copy of `database`, and without a worker."""
        with scenario_in(folder, folder, database, **environment) as scenario:
            processes, places = scenario.processes, scenario.places
            processes.start("web", web_command(places.web_port))
            wait_until(
                "the site answers",
                lambda: answers(f"{places.web_url}/readyz"),
                timeout_s=PATIENCE_S,
                check_alive=processes.check_alive,
            )
            yield cls(processes, places)

    def start_worker(self) -> None:
        self._processes.start("worker", WORKER_COMMAND)

    def login_link(self) -> str:
        """For a person who has nothing yet."""
        command = [sys.executable, "manage.py", "loginlink", "newcomer"]
        return self._processes.run("loginlink", command).strip()

    def make_world(self, name: str, *, chat_url: str, large: bool = False) -> dict[str, Any]:
        """Rows of everything, by `site_world`; their ids."""
        arguments = (name, chat_url, *(["large"] if large else []))
        world: dict[str, Any] = self.run_main("tests.e2e.site_world", *arguments)
        return world

    def run_main(self, module: str, *arguments: str) -> Any:
        """What `main` of a module of the tests returns in this site's environment."""
        return run_in_site(self._processes, module, *arguments)
