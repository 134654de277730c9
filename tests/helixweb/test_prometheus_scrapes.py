"""A real Prometheus with our files reads a site, a coordinator and an agent."""

import asyncio
import hashlib
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import scrapes
import yaml
from django.contrib.auth import get_user_model
from starlette.applications import Starlette
from starlette.middleware import Middleware

from helixweb.common.api_keys import create_api_key
from helixweb.demo.processes import free_port
from helixweb.inventory.models import Cluster
from runtime.api.access import ApiKeys, RequireApiKey
from runtime.http_process import HttpServer, listen
from runtime.metrics_port import metrics_port, metrics_route
from tests.installed import installed

pytestmark = pytest.mark.processes

SHIPPED = Path(__file__).parents[2] / "packaging" / "prometheus"
CHAT_KEY = "hlx_chat.secret"
PATIENCE_S = 300.0


@pytest.fixture(scope="module")
def prometheus() -> str:
    return installed("prometheus", package="prometheus")


@contextmanager
def processes() -> Iterator[dict[str, str]]:
    """A coordinator's door, which wants a key, and an agent's metrics port; by job, where."""
    listener = listen("127.0.0.1", 0)
    keys = ApiKeys([hashlib.sha256(CHAT_KEY.encode()).hexdigest()])
    door = HttpServer(
        Starlette(
            routes=[metrics_route(scrapes.coordinator_page)],
            middleware=[Middleware(RequireApiKey, keys=keys)],
        )
    )
    told: dict[str, str] = {"helixweb-coordinator": f"127.0.0.1:{listener.getsockname()[1]}"}
    ready, loop = threading.Event(), asyncio.new_event_loop()

    async def serve() -> None:
        async with metrics_port(0, scrapes.agent_page) as port:
            told["helixweb-agent"] = f"127.0.0.1:{port}"
            ready.set()
            await door.serve(sockets=[listener])

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert ready.wait(PATIENCE_S)
        yield told
    finally:
        door.should_exit = True
        thread.join()
        loop.close()


@contextmanager
def running(prometheus: str, folder: Path, port: int) -> Iterator[httpx.Client]:
    command = [
        prometheus,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    try:
        with httpx.Client(
            base_url=f"http://127.0.0.1:{port}/api/v1", trust_env=False, timeout=PATIENCE_S
        ) as client:
            yield client
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE_S)


def until(found: Callable[[], Any], what: Callable[[], str]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            if value := found():
                return value
        except httpx.TransportError:
            pass  # it is starting
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("time_stands_still")  # no node is lost until Prometheus has begun
def test_it_scrapes_all_targets_and_evaluates_every_rule(
    prometheus: str, live_server: Any, cluster: Cluster, user: Any, tmp_path: Path
) -> None:
    scrapes.serve(cluster, user)
    owner = get_user_model().objects.create_superuser("root")
    site_key = create_api_key(name="prometheus", user=owner, scopes=["read"]).secret
    shutil.copy(SHIPPED / "helixweb.rules.yml", tmp_path)
    (tmp_path / "site.key").write_text(site_key)
    (tmp_path / "coordinator.key").write_text(CHAT_KEY)
    with processes() as targets:
        targets["helixweb-site"] = live_server.url.removeprefix("http://")
        config = yaml.safe_load((SHIPPED / "prometheus.yml").read_text())
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        for job in config["scrape_configs"]:
            job["static_configs"][0]["targets"] = [targets.pop(job["job_name"])]
        assert not targets
        (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
        with running(prometheus, tmp_path, free_port()) as asked:

            def query(text: str) -> list[Any]:
                answer = asked.get("/query", params={"query": text}).json()
                return answer.get("data", {}).get("result", [])

            def log() -> str:
                return (tmp_path / "log").read_text()

            def told() -> str:
                return asked.get("/targets").text + log()

            until(lambda: asked.get(asked.base_url.join("/-/ready")).is_success, log)
            until(lambda: len(query('up{job=~"helixweb-.*"} == 1')) == 3, told)
            assert query(f'helix_nodes{{cluster="{cluster.name}",state="online"}} == 3')
            assert query('vllm:request_success_total{finished_reason="stop"} == 1')
            assert query('vllm:kv_cache_usage_perc{node="tower"} == 0.25')

            def evaluated() -> list[Any] | None:
                groups = asked.get("/rules").json()["data"]["groups"]
                every = [rule for group in groups for rule in group["rules"]]
                done = every and all(rule["health"] != "unknown" for rule in every)
                return every if done else None

            for rule in until(evaluated, told):
                assert rule["health"] == "ok", rule
            until(lambda: query("helixweb:output_tokens:rate_1m"), told)
            until(lambda: query('ALERTS{alertname="HelixWebLinkSlow"}'), told)
