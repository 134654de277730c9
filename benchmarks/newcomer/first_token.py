"""`python -m benchmarks.newcomer.first_token LOGIN_LINK`: from the login link to a first token.

Against a running `make demo`, whose link it takes (good once). Someone who has never seen the site
opens the link in headless Chromium and follows what the pages offer first; the time ends when the
first token of an answer is on the page.
"""

import argparse
import time
from urllib.parse import urlsplit

from selenium import webdriver

from tests.e2e.chromium import headless_chromium
from tests.e2e.person import Person

MOST_SECONDS, MOST_CLICKS = 60, 8
QUESTION = "What is HelixWeb?"


def reach_the_first_token(browser: webdriver.Chrome, login_link: str) -> tuple[Person, str]:
    """Log in, follow the button to the chat, ask; the person, and what stands there by then."""
    url = urlsplit(login_link)
    person = Person(browser, f"{url.scheme}://{url.netloc}")
    browser.get(login_link)
    person.click("Log in")
    person.click("Chat", within=".page-head")
    person.find("#prompt").send_keys(QUESTION)
    person.click("Send")
    return person, person.until(lambda: person.text("#messages .assistant .said"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("login_link", help='the line "Log in (once)" of make demo')
    arguments = parser.parse_args()
    with headless_chromium() as browser:
        begin = time.monotonic()
        person, said = reach_the_first_token(browser, arguments.login_link)
        seconds = time.monotonic() - begin
    print(f"first token after {seconds:.1f} s (at most {MOST_SECONDS})")
    print(f"{person.clicks} clicks (at most {MOST_CLICKS}); it said {said!r}")
    if seconds > MOST_SECONDS or person.clicks > MOST_CLICKS:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
