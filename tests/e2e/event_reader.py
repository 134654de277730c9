"""An open page: reads events, and after a break asks for those that came meanwhile."""

import re
import threading
import time

import httpx

from helixweb.client.wire import read_events

_TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')


def log_in(http: httpx.Client, link: str) -> None:
    """By a one-time link, as its page does."""
    form = http.get(link).text
    found = _TOKEN.search(form)
    assert found, form
    content = {"csrfmiddlewaretoken": found.group(1)}
    answer = http.post(link, data=content, headers={"Referer": str(http.base_url)})
    assert answer.status_code == 302, answer.text


class EventReader:
    """A context manager. `seen` are ids of events in the order they came; `is_open` once a stream
    was. After `silent_s` without an event it asks again, unless it was left."""

    def __init__(
        self, url: str, *, topics: list[str], login_link: str, silent_s: float = 2.0
    ) -> None:
        self.seen: list[int] = []
        self.breaks = 0
        self.is_open = False
        self._timeout = httpx.Timeout(30, read=silent_s)
        self._last_id = "0"
        self._http = httpx.Client(base_url=url, timeout=120)
        log_in(self._http, login_link)
        self._topics = ",".join(topics)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._read, name="reader")

    def __enter__(self) -> "EventReader":
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._closing.set()
        self._thread.join()
        self._http.close()

    def _read(self) -> None:
        while not self._closing.is_set():
            headers = {"Last-Event-ID": self._last_id}
            try:
                with self._http.stream(
                    "GET",
                    "/events",
                    params={"topics": self._topics},
                    headers=headers,
                    timeout=self._timeout,
                ) as answer:
                    self.is_open = answer.is_success
                    for event in read_events(answer.iter_bytes()):
                        self._last_id = event.id
                        self.seen.append(event.data["event_id"])
                        if self._closing.is_set():
                            return
            except httpx.TransportError:
                self.breaks += 1
            time.sleep(0.1)
