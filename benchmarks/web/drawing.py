"""How long a browser takes to draw the heaviest pages of a large site.

    python -m benchmarks.web.drawing --data-dir DIR [--database-url URL] [--repeats N]

DIR is a site that `large_site` has filled. A real web process serves it and headless Chromium opens
each page. Three numbers, all from one visit, the one that kept the browser busy for the least time:

* seen: from the end of the HTML (`responseEnd`) until every chart in the window (1280 x 900) is
  drawn;
* all: until every chart of the page that is not folded away is, which the page does in time that is
  left over;
* busy: CPU time of the page's main thread from the beginning until all are drawn, its scripts,
  styles and layout included. A busy machine stretches the first two, not this one.

Plotly itself comes from the browser's cache after the first page.
"""

import argparse
import os
import shutil
import subprocess
from dataclasses import dataclass
from datetime import timedelta

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
HEARD_OF_FOR = timedelta(minutes=10)  # else its charts of now would be empty after some seconds
PAGES = (
    "/monitor/?cluster={cluster}", "/clusters/{cluster}/network/", "/plans/{run}/",
    "/nodes/", "/deployments/{deployment}/", "/clusters/{cluster}/nodes/{node}/", "/",
)  # fmt: skip
# When the charts of the window were drawn, and all: both, once all are.
WATCH = """
window.drawn = { seen: 0, all: 0 };
const isDrawn = (chart) => chart.querySelector(".main-svg");
const look = () => {
  const charts = [...document.querySelectorAll("[data-figure-json]")]
    .filter((chart) => chart.checkVisibility());
  const seen = charts.filter((chart) => chart.getBoundingClientRect().top < innerHeight);
  if (!window.drawn.seen && seen.every(isDrawn)) window.drawn.seen = performance.now();
  if (charts.every(isDrawn)) window.drawn.all = performance.now();
};
document.addEventListener("helix:drawn", look);
document.addEventListener("DOMContentLoaded", () => setTimeout(look)); // without any chart
"""
DRAWN = "return window.drawn?.all ? [window.drawn.seen, window.drawn.all] : null"
ENDED = "return performance.getEntriesByType('navigation')[0].responseEnd"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Visit:
    """Seconds, as the docstring above has them."""

    busy_s: float
    seen_s: float
    all_s: float


def main() -> int:
    arguments = _arguments()
    open_site(arguments)
    from benchmarks.web.asking import Browser, ids_of_rows
    from benchmarks.web.rows import recent_samples

    recent_samples(ahead=HEARD_OF_FOR)
    ids, port, slow = ids_of_rows(), free_port(), []
    environment = {**os.environ, **site_environment(arguments), "OMP_NUM_THREADS": "1"}
    with (arguments.data_dir / "web.log").open("ab") as log:
        web = subprocess.Popen(web_command(port), cwd=ROOT, env=environment, stderr=log)
    chrome = _chrome()
    try:
        await_ready(port)
        chrome.get(f"http://127.0.0.1:{port}/healthz")
        chrome.add_cookie({"name": "sessionid", "value": Browser().session})
        chrome.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
        _visit(chrome, port, PAGES[0].format(**ids))  # so that the browser has Plotly
        print(
            f"{'seen ms':>8} {'all ms':>8} {'busy ms':>8}  page (the best of {arguments.repeats})"
        )
        for page in PAGES:
            address = page.format(**ids)
            best = min(_visit(chrome, port, address) for _ in range(arguments.repeats))
            if max(best.seen_s, best.busy_s) > WANTED_S:
                slow.append(address)
            print(
                f"{1e3 * best.seen_s:8.0f} {1e3 * best.all_s:8.0f} {1e3 * best.busy_s:8.0f}  "
                f"{address}",
                flush=True,
            )
    finally:
        chrome.quit()
        web.terminate()
        web.wait()
    print(f"Seen or busy above {WANTED_S:.0f} s: {', '.join(slow) or 'none'}")
    return 1 if slow else 0


def _visit(chrome: webdriver.Chrome, port: int, address: str) -> Visit:
    chrome.get(f"http://127.0.0.1:{port}{address}")
    seen_ms, all_ms = WebDriverWait(chrome, PATIENCE_S, poll_frequency=0.05).until(
        lambda driver: driver.execute_script(DRAWN)
    )
    ended_ms = chrome.execute_script(ENDED)
    metrics = chrome.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return Visit(
        busy_s=next(row["value"] for row in metrics if row["name"] == "ThreadTime"),
        seen_s=(seen_ms - ended_ms) / 1e3,
        all_s=(all_ms - ended_ms) / 1e3,
    )


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
