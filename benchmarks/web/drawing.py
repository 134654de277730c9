"""How long a browser takes to draw the heaviest pages of a large site.

    python -m benchmarks.web.drawing --data-dir DIR [--database-url URL] [--repeats N]

DIR is a site that `large_site` has filled. A real web process serves it and headless Chromium opens
each page: from the end of the HTML (`responseEnd`) until every chart of the page is drawn, and the
browser's own busy time in between, which a busy machine stretches less. Plotly itself comes from
the browser's cache after the first page.
"""

import argparse
import os
import shutil
import subprocess
import time
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

from benchmarks.web.opening import ROOT, open_site, site_arguments, site_environment
from benchmarks.web.streams import await_ready
from helixweb.demo.processes import free_port
from helixweb.demo.scenario import web_command

WANTED_S = 1.0
PATIENCE_S = 60
PAGES = (
    "/monitor/?cluster={cluster}", "/clusters/{cluster}/network/", "/plans/{run}/",
    "/nodes/", "/deployments/{deployment}/", "/clusters/{cluster}/nodes/{node}/", "/",
)  # fmt: skip
DRAWN = """
const charts = [...document.querySelectorAll("[data-figure-json]")];
return charts.every((chart) => chart.querySelector(".main-svg")) ? performance.now() : 0;
"""
ENDED = "return performance.getEntriesByType('navigation')[0].responseEnd"


def main() -> int:
    arguments = _arguments()
    open_site(arguments)
    from benchmarks.web.asking import Browser, ids_of_rows
    from benchmarks.web.rows import recent_samples

    recent_samples()
    ids, port, slow = ids_of_rows(), free_port(), []
    environment = {**os.environ, **site_environment(arguments), "OMP_NUM_THREADS": "1"}
    with (arguments.data_dir / "web.log").open("ab") as log:
        web = subprocess.Popen(web_command(port), cwd=ROOT, env=environment, stderr=log)
    chrome = _chrome()
    try:
        await_ready(port)
        chrome.get(f"http://127.0.0.1:{port}/healthz")
        chrome.add_cookie({"name": "sessionid", "value": Browser().session})
        _drawn(chrome, port, PAGES[0].format(**ids))  # so that the browser has Plotly
        print(f"{'drawn ms':>9} {'busy ms':>8}  page (the fastest of {arguments.repeats})")
        for page in PAGES:
            address = page.format(**ids)
            found = [_drawn(chrome, port, address) for _ in range(arguments.repeats)]
            drawn_s, busy_s = min(found)
            if drawn_s > WANTED_S:
                slow.append(address)
            print(f"{1e3 * drawn_s:9.0f} {1e3 * busy_s:8.0f}  {address}", flush=True)
    finally:
        chrome.quit()
        web.terminate()
        web.wait()
    print(f"Above {WANTED_S:.0f} s: {', '.join(slow) or 'none'}")
    return 1 if slow else 0


def _drawn(chrome: webdriver.Chrome, port: int, address: str) -> tuple[float, float]:
    """(seconds from the end of the HTML until all is drawn, seconds the page was busy in all)."""
    chrome.get(f"http://127.0.0.1:{port}{address}")
    drawn_ms: float = WebDriverWait(chrome, PATIENCE_S, poll_frequency=0.02).until(
        lambda driver: driver.execute_script(DRAWN)
    )
    ended_ms = chrome.execute_script(ENDED)
    metrics: dict[str, Any] = chrome.execute_cdp_cmd("Performance.getMetrics", {})
    busy_s = next(row["value"] for row in metrics["metrics"] if row["name"] == "TaskDuration")
    time.sleep(0.2)
    return (drawn_ms - ended_ms) / 1e3, busy_s


def _chrome() -> webdriver.Chrome:
    options = Options()
    options.binary_location = shutil.which("chromium") or ""
    switches = (
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
        "--disable-dev-shm-usage", "--window-size=1280,900",
    )  # fmt: skip
    for switch in switches:
        options.add_argument(switch)
    chrome = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver") or ""))
    chrome.execute_cdp_cmd("Performance.enable", {})
    return chrome


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.web.drawing")
    site_arguments(parser)
    parser.add_argument("--repeats", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
