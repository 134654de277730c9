"""Headless Chromium: who needs a window gets one here."""

import base64
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

SWITCHES = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--force-color-profile=srgb", "--window-size=1280,900",
)  # fmt: skip
# As Debian, Ubuntu's snap, and Google's own package call them. The headless shell comes first: it
# is the same engine without a desktop browser around it, so its main process needs a third of the
# CPU time. Of Debian's it is the program itself: the driver ends what it started, and the script
# /usr/bin/chromium-headless-shell leaves a browser behind when it is ended.
_BROWSERS = (
    "/usr/lib/chromium/chromium-headless-shell", "chrome-headless-shell", "chromium",
    "chromium-browser", "google-chrome", "google-chrome-stable", "chrome",
)  # fmt: skip
_DRIVERS = ("chromedriver", "chromium.chromedriver")
_STARTS, _PATIENCE_S = 3, 300
REMEDY = "apt-get install chromium chromium-driver, or Google Chrome with its chromedriver"


def is_installed() -> bool:
    return bool(_first_of(_BROWSERS) and _first_of(_DRIVERS))


def _first_of(programs: Sequence[str]) -> str:
    """The path of the first program that is installed; empty if none is."""
    return next(filter(None, map(shutil.which, programs)), "")


@contextmanager
def headless_chromium() -> Iterator[webdriver.Chrome]:
    """A window of 1280 x 900 that keeps its console's lines."""
    options = Options()
    options.binary_location = _first_of(_BROWSERS)
    for switch in SWITCHES:
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = _started(options)
    chrome.set_script_timeout(_PATIENCE_S)
    try:
        yield chrome
    finally:
        chrome.quit()


def _started(options: Options) -> webdriver.Chrome:
    """On a machine that is busy the driver may give up before the browser has said where it is."""
    for _ in range(_STARTS - 1):
        with suppress(WebDriverException):
            return webdriver.Chrome(options=options, service=_driver())
    return webdriver.Chrome(options=options, service=_driver())


def _driver() -> Service:
    return Service(_first_of(_DRIVERS))


def picture_of_page(browser: webdriver.Chrome) -> bytes:
    """All of the page, however long, as WebP."""
    return _picture(browser, captureBeyondViewport=True)


def picture_of_window(browser: webdriver.Chrome) -> bytes:
    """What stands in the window now, as WebP."""
    return _picture(browser, captureBeyondViewport=False)


def _picture(browser: webdriver.Chrome, **how: bool) -> bytes:
    asked = {"format": "webp", "quality": 80, **how}
    shot = browser.execute_cdp_cmd("Page.captureScreenshot", asked)
    return base64.b64decode(shot["data"])
