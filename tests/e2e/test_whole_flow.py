"""From login to a chat answer in a real browser, over real processes, on both pairs of services."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest
from openai import OpenAI
from selenium import webdriver
from selenium.webdriver.common.by import By

from helixweb.demo import local_cluster
from helixweb.demo.scenario import MAX_TOKENS, Scenario
from helixweb.demo.site import Site
from helixweb.deployment.services.losses import is_served
from planner.serialization import plan_from_dict
from runtime.models.reference import chat_prompt, greedy_tokens
from tests.e2e.browsed_site import children_with, scenario_in
from tests.e2e.person import Person
from tests.waiting import PATIENCE_S

NODE_OF_RANKS = "tower"
QUESTIONS = list(local_cluster.TINY.questions)

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


@pytest.fixture
def scenario(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    services: dict[str, str],
    trained_models: Path,
) -> Iterator[Scenario]:
    """A site that runs; nodes are started by the test."""
    database = None if services else request.getfixturevalue("blank_sqlite")
    with scenario_in(tmp_path, trained_models, database, **services) as scenario:
        scenario.start_web()
        yield scenario


@pytest.fixture(scope="module")
def expected(trained_models: Path) -> list[list[int]]:
    """Token ids of the answers by `transformers`, which do not depend on the services."""
    checkpoint = trained_models / local_cluster.TINY.name
    prompts = [chat_prompt(checkpoint, question) for question in QUESTIONS]
    return [
        greedy_tokens(checkpoint, prompt_token_ids=prompt, max_tokens=MAX_TOKENS)
        for prompt in prompts
    ]


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    """What is registered here is closed however the test ends."""
    with ExitStack() as stack:
        yield stack


def test_a_person_goes_from_login_to_a_chat_answer(
    scenario: Scenario,
    browser: webdriver.Chrome,
    closing: ExitStack,
    services: dict[str, str],
    expected: list[list[int]],
) -> None:
    person = Person(browser, scenario.places.web_url)
    browser.get(scenario.login_link())
    person.click("Log in")
    person.see("h1", "Overview")

    site, key = scenario.connect()
    closing.callback(site.close)
    cluster_id = scenario.ensure_cluster(site, scenario.make_checkpoint())
    scenario.start_nodes(site, cluster_id)
    compute_a_plan(person)
    a_part_may_be_replaced_while_it_is_fetched(person)
    deploy(person)

    chat_in_the_playground(person)
    watch_the_numbers_rise(person, lambda: stream_all(scenario, key))
    assert stream_all(scenario, key) == expected
    stages = {name: _stage_of(scenario, name).pid for name in scenario.nodes}
    with answers_stay(expected, lambda: stream_all(scenario, key)):
        deploy_another_and_the_first_again(person, site, cluster_id)
        assert {name: _stage_of(scenario, name).pid for name in scenario.nodes} == stages
        drain_a_node(person, site, cluster_id)
    every_kv_page_is_free(person, site, cluster_id)
    if not services:  # what the nodes run does not depend on them
        ranks_are_processes_of_a_node(scenario, site, cluster_id)
        assert stream_all(scenario, key) == expected
    assert person.script_errors() == []

    scenario.processes.stop(scenario.web)
    assert stream_all(scenario, key) == expected


def compute_a_plan(person: Person) -> None:
    """Leaves the page of the finished run open, without ever reloading it."""
    person.open("/plans/new")
    person.until(lambda: person.find("#fit").text not in ("", "Looking…"))
    person.fill("time_limit_s", "2")
    person.click("Compute plan")
    person.see("#run-state", "finished")
    rows = person.browser.find_elements(By.CSS_SELECTOR, "#curve-table tbody tr")
    assert len(rows) >= 2
    person.click("Layers and compute of every node")
    person.click("How the search went")
    for chart in ("flow", "layers", "utilisation", "curve"):
        person.until(lambda chart=chart: person.find(f"#{chart} .main-svg").is_displayed())


def a_part_may_be_replaced_while_it_is_fetched(person: Person) -> None:
    """The page of a run fetches itself whole and its simulations alone, in either order.

    Folds that the person opened stay open.
    """
    person.browser.execute_script(
        """
        window.answered = 0;
        document.addEventListener("htmx:afterRequest", () => { window.answered += 1; });
        const turns = setInterval(() => {
          if (window.answered >= 12) clearInterval(turns);
          document.dispatchEvent(new CustomEvent("helix:plan-run"));
          document.dispatchEvent(new CustomEvent("helix:simulation"));
        }, 100);
        """
    )
    person.until(lambda: person.browser.execute_script("return window.answered") >= 12)
    # The last answer may replace a part while it is looked at.
    assert person.text("#headline .value")
    person.until(lambda: person.find("#flow .main-svg").is_displayed())
    person.until(lambda: person.find("#layers-fold").get_attribute("open"))
    person.until(lambda: person.find("#throughputs").get_attribute("open") is None)
    assert person.script_errors() == []


def deploy(person: Person) -> None:
    person.click("Deploy this plan")
    person.see("#deployment-status", "ready")
    badges = "#deployment-nodes tbody .badge"  # replaced with every event

    def all_are_ready() -> bool:
        phases = person.browser.find_elements(By.CSS_SELECTOR, badges)
        return [phase.text for phase in phases] == ["ready"] * len(local_cluster.TINY.nodes)

    person.until(all_are_ready)
    what_happens_while_a_part_is_fetched_is_not_missed(person)
    a_part_within_takes_no_turn_of_the_whole(person)


def what_happens_while_a_part_is_fetched_is_not_missed(person: Person) -> None:
    """An event that comes while the answer to the one before is under way is answered too."""
    person.browser.execute_script(
        """
        window.asked = 0;
        const happen = () => document.dispatchEvent(new CustomEvent("helix:node-phase"));
        document.addEventListener("htmx:beforeRequest", () => {
          window.asked += 1;
          if (window.asked === 1) happen();
        });
        happen();
        """
    )
    person.until(lambda: person.browser.execute_script("return window.asked") >= 2)


def a_part_within_takes_no_turn_of_the_whole(person: Person) -> None:
    """What fetches itself within the state of a deployment leaves the state's own queue alone."""
    person.browser.execute_script(
        """
        const happen = (...types) => types.forEach((type) => {
          document.dispatchEvent(new CustomEvent(`helix:${type}`));
        });
        window.turns = [];
        const isState = ({ id }) => id === "deployment-state";
        // A request of the state, perhaps of before: it would take the first turn.
        let running = document.querySelector("#deployment-state").matches(".htmx-request");
        document.addEventListener("htmx:beforeRequest", ({ target }) => {
          if (isState(target)) running = true;
          if (window.turns[0] === "settled") window.turns.push(target.id);
        });
        document.addEventListener("htmx:afterRequest", ({ target }) => {
          if (isState(target)) running = false; // before the next of the queue starts
        });
        document.addEventListener("htmx:afterSettle", ({ target }) => {
          if (!isState(target) || running || window.turns.length) return;
          window.turns.push("settled"); // parts within are new: their throttles let them pass
          happen("deployment", "deployment", "metrics");
        });
        happen("deployment");
        """
    )
    turns = "return window.turns"
    person.until(lambda: "serving-now" in person.browser.execute_script(turns))
    person.until(lambda: person.browser.execute_script(turns).count("deployment-state") >= 2)


def chat_in_the_playground(person: Person) -> None:
    person.open("/playground/")
    person.browser.execute_script("arguments[0].value = 0", person.find("#temperature"))
    person.find("#prompt").send_keys(QUESTIONS[0])
    person.click("Send")
    answer = person.until(lambda: _finished_answer(person))
    assert answer.startswith("HelixWeb serves")


def _finished_answer(person: Person) -> str | None:
    answers = person.browser.find_elements(By.CSS_SELECTOR, "#messages .message")
    if not answers or "TTFT" not in answers[-1].find_element(By.CSS_SELECTOR, ".facts").text:
        return None
    return answers[-1].find_element(By.CSS_SELECTOR, ".said").text


def watch_the_numbers_rise(person: Person, make_load: Callable[[], object]) -> None:
    """The monitor's page, never reloaded, while requests run."""
    person.open("/monitor/")
    busy = "#monitor-nodes [data-cell=busy]"
    seen = threading.Event()

    def load_until_seen() -> None:
        while not seen.is_set():
            make_load()

    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(load_until_seen)
        try:
            person.until(lambda: _number(person.text("[data-live=output]")) > 0)
            person.until(lambda: person.text("[data-live=ttft-p50]") not in ("", "—"))
            person.until(
                lambda: person.text("[data-live=ttft-p50]") in person.text("#ttft-summary")
            )
            person.until(
                lambda: any(
                    _number(cell.text) > 0
                    for cell in person.browser.find_elements(By.CSS_SELECTOR, busy)
                )
            )
        finally:
            seen.set()
        loading.result()


@contextmanager
def answers_stay(
    expected: list[list[int]], ask_all: Callable[[], list[list[int]]]
) -> Iterator[None]:
    """All is asked again and again within, and answered alike."""
    answers: list[list[list[int]]] = []
    over = threading.Event()

    def go_on_asking() -> None:
        while not over.is_set():
            answers.append(ask_all())

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(go_on_asking)
        try:
            yield
        finally:
            over.set()
        asking.result()
    assert answers == [expected] * len(answers)


def deploy_another_and_the_first_again(person: Person, site: Site, cluster_id: int) -> None:
    """Another plan beside the first, by a button, and back by another: layers move."""
    (first,) = site.results("deployments/", cluster=cluster_id)
    options = {"objective": "flow", "time_limit_s": 2}
    asked = {"cluster": cluster_id, "model": first["model"], "options": options}
    where = f"plan-runs/{site.post('plan-runs/', asked)['id']}/"
    person.until(lambda: site.get(where)["status"] == "succeeded")
    run = site.get(where)
    before, after = (site.get(f"plans/{pk}/")["document"] for pk in (first["plan"], run["plan"]))
    assert before["placement"] != after["placement"]
    person.open(f"/plans/{run['id']}/")
    for generation, button in (
        (2, "Deploy this plan"), (3, f"Roll back to #{first['id']}"),
    ):  # fmt: skip
        person.click(button)
        person.see("#deployment-status", f"generation {generation}")
        person.until(lambda: site.results("deployments/", cluster=cluster_id)[0]["took_over_at"])


def drain_a_node(person: Person, site: Site, cluster_id: int) -> None:
    """One that requests can do without holds nothing in the end, and is taken in again."""
    (latest, *_) = site.results("deployments/", cluster=cluster_id)
    plan = plan_from_dict(site.get(f"plans/{latest['plan']}/")["document"])
    node = next(name for name in plan.placement.layers if is_served(plan, without=[name]))
    path = f"deployments/{latest['id']}/"
    person.open(f"/{path}")
    person.tap(f"[aria-label='Drain {node}']")
    person.see(f"[data-drain={node}]", "is drained")
    person.click(f"Take {node} in again")

    def is_ready() -> bool:
        rows = site.get(path)["assignments"]
        return all(row["phase"] == "ready" for row in rows)

    person.until(is_ready)


def ranks_are_processes_of_a_node(scenario: Scenario, site: Site, cluster_id: int) -> None:
    """The same plan with two ranks on a node, asked of the web."""
    (latest, *_) = site.results("deployments/", cluster=cluster_id)
    options = {"plan": latest["plan"], "tensor_parallel_by_node": {NODE_OF_RANKS: 2}}
    asked = site.post("deployments/", options)
    deployment = scenario.ensure_deployed(site, cluster_id, latest["plan"])
    assert deployment["id"] == asked["id"]
    told = {row["node_name"]: row["tensor_parallel"] for row in deployment["assignments"]}
    assert told == dict.fromkeys(told, 1) | {NODE_OF_RANKS: 2}
    assert {name: _ranks_run_by(scenario, name) for name in told} == told


def _stage_of(scenario: Scenario, node: str) -> psutil.Process:
    (stage,) = children_with(scenario.nodes[node], "runtime stage")
    return stage


def _ranks_run_by(scenario: Scenario, node: str) -> int:
    """The stage itself, and its children that follow it."""
    return 1 + len(children_with(_stage_of(scenario, node), "spawn_main"))


def _number(text: str) -> float:
    digits = "".join(character for character in text if character.isdigit() or character == ".")
    return float(digits) if digits else 0.0


def stream_all(scenario: Scenario, key: str) -> list[list[int]]:
    """The token ids of all questions, streamed at once straight from the coordinator."""
    url = f"{scenario.places.coordinator_url}/v1"

    def stream(question: str) -> list[int]:
        chunks = client.chat.completions.create(
            model=local_cluster.TINY.name,
            messages=[{"role": "user", "content": question}],
            temperature=0,
            max_tokens=MAX_TOKENS,
            stream=True,
            extra_body={"return_token_ids": True},
        )
        choices = [choice for chunk in chunks for choice in chunk.choices]
        return [one for choice in choices for one in getattr(choice, "token_ids", None) or []]

    with (
        OpenAI(base_url=url, api_key=key, timeout=PATIENCE_S, max_retries=0) as client,
        ThreadPoolExecutor(len(QUESTIONS)) as pool,
    ):
        return list(pool.map(stream, QUESTIONS))


def every_kv_page_is_free(person: Person, site: Site, cluster_id: int) -> None:
    """As heartbeats later than this moment tell the site."""
    begin = datetime.now(UTC)

    def all_free() -> bool:
        deployment = site.results("deployments/", cluster=cluster_id)[0]
        rows = site.get(f"deployments/{deployment['id']}/")["assignments"]
        heard = all(datetime.fromisoformat(row["updated_at"]) > begin for row in rows)
        return heard and all(row["stats"]["kv_pages_used"] == 0 for row in rows)

    person.until(all_free)
