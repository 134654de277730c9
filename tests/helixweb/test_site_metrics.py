"""The site's /metrics: what each reader gets, and that no list of names grows without bound; the
shipped rules and dashboard ask for nothing else, and a real Prometheus reads it by them."""

import asyncio
import hashlib
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import scrapes
import yaml
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone
from starlette.applications import Starlette
from starlette.middleware import Middleware

from helixweb.access.scope import WHOLE_SITE
from helixweb.common import metrics
from helixweb.common.api_keys import create_api_key
from helixweb.demo.processes import free_port
from helixweb.inventory.models import Cluster
from helixweb.operations.asking import answers
from runtime.api.access import ApiKeys, RequireApiKey
from runtime.http_process import HttpServer, listen
from runtime.metrics_port import metrics_port, metrics_route
from runtime.protocol.exposition import gauge
from tests.helixweb.looking import answered
from tests.installed import installed
from tests.waiting import PATIENCE_S, until

# No node is lost until Prometheus has begun.
pytestmark = pytest.mark.usefixtures("time_stands_still")


@pytest.fixture
def key(db: None) -> str:
    owner = get_user_model().objects.create_superuser("root")
    return create_api_key(name="prometheus", user=owner, scopes=["read"]).secret


def scrape(client: Client, key: str = "", **more: Any) -> Any:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    headers["Accept"] = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    return client.get("/metrics", headers=headers, **more)


def test_a_key_that_may_read_gets_the_page_and_nobody_else(client: Client, key: str) -> None:
    answer = answered(scrape(client, key), 200)
    assert answer["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert scrapes.value(answer.content, "helix_outbox_events_total") >= 0
    refused = answered(scrape(client), 401)
    assert refused["Content-Type"] == "application/problem+json"
    assert scrape(client, key + "x").status_code == 401
    owner = get_user_model().objects.get(username="root")
    serving = create_api_key(name="chat", user=owner, scopes=["serve"]).secret
    assert scrape(client, serving).status_code == 403


def test_loopback_may_be_exempt_from_keys(client: Client, db: None, settings: Any) -> None:
    assert scrape(client).status_code == 401
    settings.HELIX_METRICS_ON_LOOPBACK = True
    assert scrape(client).status_code == 200
    assert scrape(client, REMOTE_ADDR="10.0.0.7").status_code == 401
    assert scrape(client, HTTP_X_FORWARDED_FOR="127.0.0.1").status_code == 401


def test_a_cluster_at_work_is_told_by_the_numbers_of_its_pages(cluster: Cluster, user: Any) -> None:
    joined, deployment = scrapes.serve(cluster, user)
    page = scrapes.site_page()
    name = cluster.name
    assert scrapes.value(page, "helix_nodes", cluster=name, state="online") == 3
    assert scrapes.value(page, "helix_node_up", cluster=name, node="tower") == 1
    assert scrapes.value(page, "helix_front_up", cluster=name) == 1
    assert scrapes.value(page, "helix_deployment_status", cluster=name, state="ready") == 1
    assert scrapes.value(page, "helix_deployment_status", cluster=name, state="failed") == 0
    assert scrapes.value(page, "helix_deployment_generation") == deployment.generation
    bound = joined.plan.upper_bound_tokens_per_s
    assert scrapes.value(page, "helix_plan_bound_tokens_per_second") == pytest.approx(bound)
    assert scrapes.value(page, "helix_cluster_latency_seconds", kind="ttft", quantile="0.95") == 0.4
    used = next(iter(joined.used_agents))
    assert scrapes.value(page, "helix_node_kv_pages", node=used, kind="used") == 25
    assert scrapes.value(page, "helix_node_kv_promised_ratio", node=used) == 0.75
    links = [
        told
        for sample, told, _ in scrapes.samples(page)
        if sample == "helix_link_bandwidth_bytes_per_second" and told["kind"] == "measured"
    ]
    assert links
    assert scrapes.value(page, "helix_link_slow", source=links[0]["source"]) == 1
    joined.silence("tower")
    page = scrapes.site_page()
    assert scrapes.value(page, "helix_node_up", node="tower") == 0
    assert scrapes.value(page, "helix_node_heartbeat_age_seconds", node="tower") == 60
    assert scrapes.value(page, "helix_nodes", state="lost") == 1


def test_unfinished_tasks_are_counted_by_kind(plan: Any) -> None:
    page = scrapes.site_page()
    assert scrapes.value(page, "helix_tasks", kind="simulation", status="queued") == 1
    assert scrapes.value(page, "helix_tasks", kind="planrun", status="queued") == 0


def test_what_a_client_makes_up_becomes_no_label(client: Client, db: None) -> None:
    client.generic("BREW", "/healthz")
    page = scrapes.site_page()
    methods = {
        told["method"]
        for name, told, _ in scrapes.samples(page)
        if name == "helix_web_requests_total"
    }
    assert "other" in methods
    assert "BREW" not in methods


def test_a_family_of_too_many_lines_says_so(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [({"name": str(number)}, float(number)) for number in range(12)]
    monkeypatch.setattr(metrics, "MOST_LINES", 10)
    many = gauge("helix_many", "words", lines)
    monkeypatch.setattr(metrics, "collectors", lambda: [lambda now, scope: [many]])
    page = metrics.metrics_page(timezone.now(), WHOLE_SITE)
    assert len([name for name, _, _ in scrapes.samples(page) if name == "helix_many"]) == 10
    assert scrapes.value(page, "helix_metrics_left_out", family="helix_many") == 2


PACKAGING = Path(__file__).parents[2] / "packaging"
RULES = PACKAGING / "prometheus" / "helixweb.rules.yml"
DASHBOARD = PACKAGING / "grafana" / "helixweb.json"
_OURS = re.compile(r"\b((?:vllm:|helix_|helixweb:)[a-z0-9_:]+)(?:\{([^}]*)\})?")
_LABEL = re.compile(r"([a-z_]+)\s*(?:=~|!~|!=|=)")
_WORDS = re.compile(r"\b[a-zA-Z_:][a-zA-Z0-9_:]*\b")
_LANGUAGE = {
    "by", "sum", "max", "rate", "histogram_quantile", "or", "up", "label_values",
}  # fmt: skip


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard_expressions() -> Iterator[str]:
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["definition"]


def expressions() -> list[str]:
    return [*(rule["expr"] for rule in rules()), *dashboard_expressions()]


def test_every_metric_and_label_asked_for_is_told_by_one_of_our_pages(
    cluster: Cluster, user: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("helixweb.monitoring.moment.output_forecast", lambda *_: 40.0)
    scrapes.serve(cluster, user)
    labels: dict[str, set[str]] = {rule["record"]: set() for rule in rules() if "record" in rule}
    pages = (scrapes.site_page(), scrapes.coordinator_page(), scrapes.agent_page())
    site, coordinator, agent = ({name for name, _, _ in scrapes.samples(page)} for page in pages)
    assert not site & (coordinator | agent), "no metric comes from two kinds of processes"
    # The coordinator's is what it promised of the fullest node; the agent's has a node's name.
    assert coordinator & agent == {"vllm:kv_cache_usage_perc"}
    for page in pages:
        for name, told, _ in scrapes.samples(page):
            labels.setdefault(name, set()).update(told)
    asked = [found for text in expressions() for found in _OURS.finditer(text)]
    assert len(asked) > 50
    for found in asked:
        assert found[1] in labels, found[0]
        assert set(_LABEL.findall(found[2] or "")) <= labels[found[1]], found[0]


def test_no_metric_is_asked_for_under_a_name_that_is_not_looked_up() -> None:
    """What the test above takes for a name is all that there is."""
    for text in expressions():
        rest = re.sub(r"\{[^}]*\}|\([a-z_, ]*\)(?= ?\()|\[[^\]]*\]", " ", _OURS.sub(" ", text))
        rest = re.sub(r"\bby \([a-z_, ]*\)", " ", rest)
        assert set(_WORDS.findall(rest)) - {"cluster", "for"} <= _LANGUAGE, text


def test_the_dashboard_has_panels_that_do_not_overlap_and_leaves_the_data_source_open() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    taken: set[tuple[int, int]] = set()
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}"
    assert "datasource" in {each["name"] for each in dashboard["templating"]["list"]}


def test_every_alert_says_how_grave_it_is_and_what_it_is_about() -> None:
    for rule in rules():
        if "alert" in rule:
            assert rule["labels"]["severity"] in ("warning", "critical")
            assert rule["annotations"]["summary"]
            assert "for" in rule


@pytest.fixture(scope="module")
def promtool() -> str:
    """It comes with Prometheus."""
    return installed("promtool", package="prometheus")


@pytest.mark.processes
@pytest.mark.parametrize(
    "command", [["check", "rules", "helixweb.rules.yml"], ["test", "rules", "helixweb.tests.yml"]]
)
def test_promtool_takes_the_rules_and_their_tests(promtool: str, command: list[str]) -> None:
    done = subprocess.run(
        [promtool, *command], cwd=RULES.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


SHIPPED = Path(__file__).parents[2] / "packaging" / "prometheus"
CHAT_KEY = "hlx_chat.secret"


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


@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
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

            ready = str(asked.base_url.join("/-/ready"))
            until(lambda: answers(ready), f"it is ready; its log is in {tmp_path}")
            up = 'up{job=~"helixweb-.*"} == 1'
            until(lambda: len(query(up)) == 3, "all targets are up")
            assert query(f'helix_nodes{{cluster="{cluster.name}",state="online"}} == 3')
            assert query('vllm:request_success_total{finished_reason="stop"} == 1')
            assert query('vllm:kv_cache_usage_perc{node="tower"} == 0.25')

            def evaluated() -> list[Any] | None:
                groups = asked.get("/rules").json()["data"]["groups"]
                every = [rule for group in groups for rule in group["rules"]]
                done = every and all(rule["health"] != "unknown" for rule in every)
                return every if done else None

            for rule in until(evaluated, "all rules are evaluated") or []:
                assert rule["health"] == "ok", rule
            until(lambda: query("helixweb:output_tokens:rate_1m"), "tokens are counted")
            until(lambda: query('ALERTS{alertname="HelixWebLinkSlow"}'), "an alert fires")
