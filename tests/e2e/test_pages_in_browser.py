"""Every page in a real browser, on a desk and on a phone, light and dark: nothing is out of reach.

axe-core (tests/assets, Mozilla Public License 2.0) says what assistive technology would stumble
over; it is a tool of the tests and no part of the package.
"""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from helixweb.demo.processes import Processes, free_port
from helixweb.demo.scenario import Places, Scenario, Timings
from runtime.protocol.control import CoordinatorReport
from tests.helixweb.process_doubles import HARDWARE
from tests.helixweb.request_traces import made_up_trace

ROOT = Path(__file__).resolve().parents[2]
AXE = (ROOT / "tests" / "assets" / "axe.min.js").read_text()
PATIENCE_S = 90
# A page may need the ids of its rows: {cluster}, {node}, {profile}, {model}, {run}, {plan},
# {incumbent}, {request}.
PAGES = (
    "/", "/clusters/", "/clusters/new", "/clusters/import", "/clusters/{cluster}/",
    "/clusters/{cluster}/edit", "/clusters/{cluster}/network/",
    "/clusters/{cluster}/network/?show=latency", "/clusters/{cluster}/links/new",
    "/clusters/{cluster}/shared-bandwidths/new", "/clusters/{cluster}/profiles/new",
    "/nodes/", "/nodes/?q=nobody",
    "/clusters/{cluster}/nodes/{node}/", "/clusters/{cluster}/nodes/{node}/edit", "/models/",
    "/models/{model}/", "/profiles/", "/profiles/{profile}/", "/changes/", "/plans/", "/plans/new",
    "/plans/{run}/", "/plans/{run}/incumbents/{incumbent}/", "/plans/by-id/{plan}/what-if",
    "/plans/by-id/{plan}/replan", "/plans/compare?plan={plan}", "/deployments/",
    "/deployments/new?plan={plan}", "/monitor/", "/requests/", "/requests/{request}/",
    "/playground/", "/settings/", "/settings/api-keys/", "/settings/join-tokens/",
    "/settings/jobs/", "/settings/about/",
)  # fmt: skip
# All rules in two looks, which differ in width and theme; in the others those that ask for colours.
COLOURS = ("color-contrast", "link-in-text-block")
LOOKS = (
    ("desk-light", 1280, "light", ()),
    ("desk-dark", 1280, "dark", COLOURS),
    ("phone-dark", 390, "dark", ()),
    ("phone-light", 390, "light", COLOURS),
)
GONE = (NoSuchElementException, StaleElementReferenceException)
# What the address of a page of the site gives away about its rows.
ID = re.compile(r"/(\d+)/?$")

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


@pytest.fixture
def scenario(tmp_path: Path) -> Iterator[Scenario]:
    """A site of its own."""
    places = Places(
        data_dir=tmp_path, models_dir=tmp_path, web_port=free_port(), coordinator_port=free_port()
    )
    env = {**places.env, "DATABASE_URL": "", "REDIS_URL": ""}
    with Processes(log_dir=tmp_path / "logs", cwd=ROOT, env=env) as processes:
        scenario = Scenario(places, processes, Timings())
        scenario.start_web()
        yield scenario


def test_every_page_is_within_reach_of_everybody(
    scenario: Scenario, browser: webdriver.Chrome
) -> None:
    browser.set_script_timeout(PATIENCE_S)
    browser.get(scenario.login_link())
    press(browser, "Log in")
    wait(browser, "h1", "Overview")
    ids = plan_the_demo(browser, scenario.places.web_url)
    ids["request"] = trace_a_request(scenario, cluster=int(ids["cluster"]))
    found = dict(problems(browser, scenario.places.web_url, ids=ids))
    assert found == {}


def plan_the_demo(browser: webdriver.Chrome, base: str) -> dict[str, str]:
    """By clicks: load the demo cluster, plan it, open what came of it; the ids of all that."""
    browser.get(f"{base}/clusters/")
    press(browser, "Load the demo cluster")
    wait(browser, "h1", "New plan")
    field = browser.find_element(By.NAME, "time_limit_s")
    field.clear()
    field.send_keys("2")
    press(browser, "Compute plan")
    wait(browser, "#run-state", "finished")
    run = last_id(browser.current_url)
    replan = browser.find_element(By.LINK_TEXT, "What if…").get_attribute("href")
    incumbent = browser.find_element(By.CSS_SELECTOR, "#incumbents a").get_attribute("href")
    browser.get(f"{base}/nodes/")
    node = browser.find_element(By.CSS_SELECTOR, "#nodes tbody a").get_attribute("href") or ""
    ids = {"run": run, "incumbent": last_id(incumbent or ""), "node": last_id(node)}
    ids["cluster"] = node.split("/clusters/")[1].split("/")[0]
    ids["plan"] = (replan or "").split("/by-id/")[1].split("/")[0]
    for name, page in (("profile", "/profiles/"), ("model", "/models/")):
        browser.get(f"{base}{page}")
        link = browser.find_element(By.CSS_SELECTOR, f"main tbody a[href^='{page}']")
        ids[name] = last_id(link.get_attribute("href") or "")
    return ids


def trace_a_request(scenario: Scenario, *, cluster: int) -> str:
    """A coordinator joins and tells of one request; its number."""
    site, _ = scenario.connect()
    token = site.post("join-tokens/", {"cluster": cluster, "role": "coordinator"})["secret"]
    site.close()
    trace = made_up_trace(1, arrived_at=time.time())
    report = CoordinatorReport(
        generation=1, serving=True, window_s=10.0, requests_running=0, requests_waiting=0,
        requests_total=1, requests_failed_total=0, requests_rejected_total=0,
        prompt_tokens_total=64, output_tokens_total=5, prompt_tokens_per_s=6.4,
        output_tokens_per_s=0.5, traces=(trace,),
    )  # fmt: skip
    asking = {
        "join_token": token, "role": "coordinator", "node_uuid": "c" * 32, "name": "front",
        "hardware": HARDWARE, "data_endpoint": "tcp://127.0.0.1:7000",
        "data_public_key": "k" * 40, "http_url": scenario.places.coordinator_url,
    }  # fmt: skip
    with httpx.Client(base_url=scenario.places.web_url, timeout=PATIENCE_S) as client:
        joined = client.post("/api/v1/agent/register", json=asking).raise_for_status().json()
        answer = client.post(
            "/api/v1/coordinator/report",
            json=report.model_dump(mode="json"),
            headers={"Authorization": f"Bearer {joined['credential']}"},
        )
        answer.raise_for_status()
    return trace.request


def problems(
    browser: webdriver.Chrome, base: str, *, ids: dict[str, str]
) -> Iterator[tuple[str, list[str]]]:
    """Pages that axe, the window's width, or the console have something against, in each look.

    A page is loaded once and changes its look as when the window is resized and the theme switched.
    """
    browser.get_log("browser")
    for template in PAGES:
        path = template.format(**ids)
        look_like(browser, *LOOKS[0][1:3])
        browser.get(f"{base}{path}")
        WebDriverWait(browser, PATIENCE_S).until(
            lambda driver: driver.execute_script(
                "return document.readyState === 'complete' && "
                "[...document.querySelectorAll('[data-figure-json]')]"
                ".every((chart) => chart.classList.contains('js-plotly-plot'))"
            )
        )
        browser.execute_script(AXE)
        for look, width, theme, rules in LOOKS:
            look_like(browser, width, theme)
            said = violations(browser, rules=rules)
            wide = browser.execute_script("return document.documentElement.scrollWidth")
            said += [f"{wide} px wide in a window of {width}"] if wide > width else []
            if said:
                yield f"{path} on {look}", said
        lines = browser.get_log("browser")
        if severe := [line["message"] for line in lines if line["level"] == "SEVERE"]:
            yield path, severe


def look_like(browser: webdriver.Chrome, width: int, theme: str) -> None:
    """A window of that width in that theme, drawn."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_async_script(
        "document.documentElement.dataset.theme = arguments[0];"
        "document.dispatchEvent(new CustomEvent('helix-theme'));"
        "requestAnimationFrame(() => requestAnimationFrame(arguments[1]))",
        theme,
    )


def violations(browser: webdriver.Chrome, *, rules: tuple[str, ...]) -> list[str]:
    """What axe calls serious or critical, with the first element of each; no rules: all of them."""
    options = {"resultTypes": ["violations"], **({"runOnly": rules} if rules else {})}
    found: list[dict[str, Any]] = browser.execute_async_script(
        "axe.run(document, arguments[0]).then((result) => arguments[1](result.violations))",
        options,
    )
    return [
        f"{rule['id']}: {rule['nodes'][0]['html'][:200]}"
        for rule in found
        if rule["impact"] in ("serious", "critical")
    ]


def last_id(url: str) -> str:
    match = ID.search(url)
    assert match is not None, url
    return match.group(1)


def press(browser: webdriver.Chrome, words: str) -> None:
    """The button with these words, wherever it is on the page."""
    xpath = f"//main//button[normalize-space()='{words}'] | //button[normalize-space()='{words}']"
    button = WebDriverWait(browser, PATIENCE_S).until(
        lambda driver: driver.find_element(By.XPATH, xpath)
    )
    browser.execute_script("arguments[0].click()", button)


def wait(browser: webdriver.Chrome, css: str, words: str) -> None:
    """Until these words stand there."""
    WebDriverWait(browser, PATIENCE_S, ignored_exceptions=GONE).until(
        lambda driver: words in driver.find_element(By.CSS_SELECTOR, css).text
    )
