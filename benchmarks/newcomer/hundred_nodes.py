"""`python -m benchmarks.newcomer.hundred_nodes`: machines join a site and measure their links.

Each machine is a network namespace with an address of its own, a link of `--rate` to a router and a
real agent. The site and its coordinator are real, too. Needs root. Wanted: a minute after the last
has joined, every pair that the site samples is measured, both ways.
"""

import argparse
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from helixweb.demo.processes import Processes
from helixweb.demo.site import Site, wait_until
from helixweb.inventory.link_sampling import Member, sampled_pairs
from helixweb.operations.asking import answers
from runtime.agent.main import main as run_agent
from tests.shaped_links.network import REPOSITORY, enter, routed

MOST_SECONDS = 60.0
_PATIENCE_S = 600.0
_URL = "http://10.98.0.1:8000"
_HELIXWEB = (sys.executable, "-m", "helixweb.command_line")


def pairs_to_measure(regions: Sequence[str]) -> int:
    """Of nodes in these regions and a coordinator in the first."""
    at = datetime.now(UTC)
    members = [
        Member(
            name=str(number),
            is_coordinator=number == 0,
            region=region,
            endpoint="",
            heard=True,
            joined_at=at,
        )
        for number, region in enumerate([regions[0], *regions])
    ]
    return len(sampled_pairs(members))


@contextmanager
def running_site(folder: Path, region: str) -> Iterator[Site]:
    """`helixweb up` at the router, with a cluster whose coordinator is in that region."""
    env = {
        "HELIX_DATA_DIR": str(folder / "data"), "HELIX_URL": _URL,
        "DATABASE_URL": "", "REDIS_URL": "", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    with Processes(log_dir=folder / "logs", cwd=REPOSITORY, env=env) as processes:
        processes.start("up", [*_HELIXWEB, "up", "--host", "10.98.0.1", "--login", "ada"])
        wait_until(
            "the site answers", lambda: answers(f"{_URL}/readyz"), timeout_s=_PATIENCE_S,
            check_alive=processes.check_alive,
        )  # fmt: skip
        made = [*_HELIXWEB, "manage", "apikey", "ada", "cli", "--scopes", "read,write"]
        site = Site(_URL, api_key=processes.run("apikey", made).strip())
        wait_until(
            "the coordinator joins", lambda: bool(site.results("coordinators/")),
            timeout_s=_PATIENCE_S, check_alive=processes.check_alive,
        )  # fmt: skip
        (cluster,) = site.results("clusters/")
        site.patch(f"clusters/{cluster['id']}/", {"coordinator_region": region})
        try:
            yield site
        finally:
            site.close()


@contextmanager
def agents(
    folder: Path, namespaces: Sequence[str], regions: Sequence[str], token: str
) -> Iterator[None]:
    """One in each namespace. They share the memory of what this process has imported."""
    forking = multiprocessing.get_context("fork")
    children = [
        forking.Process(target=_be_agent, args=(folder / name, name, region, token))
        for name, region in zip(namespaces, regions, strict=True)
    ]
    try:
        for child in children:
            child.start()
        yield
    finally:
        for child in children:
            child.terminate()
        for child in children:
            child.join()


def _be_agent(folder: Path, name: str, region: str, token: str) -> None:
    folder.mkdir()
    enter(name)
    with (folder / "log").open("wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    run_agent(
        [
            *("--server", _URL, "--token", token, "--name", name.rpartition("-")[2]),
            *("--region", region, "--data-dir", str(folder), "--memory", "1G"),
        ]
    )


def measure(folder: Path, machines: int, regions: int, rate_bytes_per_s: float) -> float:
    """Seconds from the last join until all is measured; prints what came when."""
    region_of = [f"region-{number % regions}" for number in range(machines)]
    directions = 2 * pairs_to_measure(region_of)
    with routed(machines, rate_bytes_per_s=rate_bytes_per_s) as (router, *namespaces):
        enter(router)
        with running_site(folder, region_of[0]) as site:
            (cluster,) = site.results("clusters/")
            token = site.post(
                "join-tokens/", {"cluster": cluster["id"], "role": "node", "machines": machines}
            )["secret"]
            began_s = time.monotonic()

            def until(what: str, is_so: Callable[[], bool]) -> float:
                wait_until(what, is_so, timeout_s=_PATIENCE_S, check_alive=lambda: None)
                return time.monotonic() - began_s

            def have_joined() -> bool:
                reach = site.get(f"clusters/{cluster['id']}/reach/")
                return bool(reach["processes"] == machines + 1)  # and the coordinator

            def are_measured() -> bool:
                return bool(site.get("links/", limit=1, origin="measured")["count"] == directions)

            with agents(folder, namespaces, region_of, token):
                joined_s = until("all have joined", have_joined)
                took_s = until("links are measured", are_measured) - joined_s
    print(f"{machines} agents in {regions} regions, {rate_bytes_per_s / 125e3:g} Mb/s each")
    print(f"all have joined {joined_s:.0f} s after the start of the first")
    print(f"{directions} directions are measured {took_s:.0f} s later (at most {MOST_SECONDS:g})")
    return took_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--machines", type=int, default=100)
    add("--regions", type=int, default=4)
    add("--rate", type=float, default=10.0, metavar="MBIT_PER_S", help="default %(default)g")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        took_s = measure(Path(folder), options.machines, options.regions, options.rate * 125e3)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{used.ru_utime + used.ru_stime:.0f} CPU s on {os.cpu_count()} cores")
    if took_s > MOST_SECONDS:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
