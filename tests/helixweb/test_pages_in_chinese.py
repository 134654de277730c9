"""No page shows English words to who reads Chinese, but for names and for what was written down."""

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from django.test import Client

from tests.e2e.pages import EMPTY, PAGES
from tests.e2e.site_world import PASSWORD
from tests.helixweb.everything import make_world

SHOWN_ATTRIBUTES = {"aria-label", "title", "placeholder", "alt"}
UNREAD = {"script", "style", "pre", "code", "template", "time"}
WORD = re.compile(r"[A-Za-z][A-Za-z'-]*[A-Za-z]")
# The field's own words, names of products, methods and units, and forms of input.
SAME_IN_CHINESE = frozenset(
    """
    token GPU CPU KV TTFT ITL TPOT API REST OpenAI OpenAPI HelixWeb Helix MILP Swarm Petals
    Gurobi HiGHS highs stage-patterns milp petals annealing Python JavaScript Django curl SQLite
    sqlite PostgreSQL Hugging Face config json safetensors JSON YAML CSV UTF UTC UUID HTTP
    Cookie Enter Shift Esc Ctrl rank read write serve admin GB MB kB kbit Mbit Gbit bit ms min to
    cpu MIT English python runtime profile helixweb problem stage log data-security host
    port hlx prompt decode bursts flow coordinator share burst_size tcp http gpu-a gpu-b gpu eu
    us YOUR_KEY POST URL webhook vllm vLLM hermes transformers helix instances PCIe SXM RTX Xiong
    https postgresql GGUF systemd TCP Hub auto
    """.split()  # noqa: SIM905 - thrice as long as a list
)
# What the site, its agents and people wrote down when it happened, in English.
WRITTEN_DOWN = re.compile(
    r"No module named|reading weights|^runtime\.|^made for tests$|^\d+ nodes$"
    r"|python -m runtime profile|exited with status \d|^left idle, as they cannot hold the model: "
    r"|the receiver answered \d|^(user|group) \S+ on \S+$"
    r"|^admitted \S+: \d+ of \d+ machines$"
    r"|node \S+ lost\b|has not taken up the plan yet"  # messages of deployments
)


class Texts(HTMLParser):
    """The texts of a page that a reader sees or hears, and its charts; without code and moments."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.charts: list[Any] = []
        self._unread = 0
        self._is_chart = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._unread += tag in UNREAD
        self._is_chart = tag == "script" and ("type", "application/json") in attrs
        if tag != "time":
            self.found += [value for name, value in attrs if name in SHOWN_ATTRIBUTES and value]

    def handle_endtag(self, tag: str) -> None:
        self._unread -= tag in UNREAD
        self._is_chart = False

    def handle_data(self, data: str) -> None:
        if self._is_chart:
            self.charts.append(json.loads(data))
        elif not self._unread and data.strip():
            self.found.append(" ".join(data.split()))


def words_of_chart(figure: dict[str, Any]) -> Iterator[str]:
    """Titles of axes and colour bars, and names of lines."""
    layout = figure["layout"]
    holders = [layout[key] for key in layout if re.fullmatch("[xy]axis\\d*", key)]
    holders += [trace["colorbar"] for trace in figure["data"] if "colorbar" in trace]
    yield from (holder["title"]["text"] for holder in holders if "title" in holder)
    yield from (trace["name"] for trace in figure["data"] if trace.get("name"))


def texts(page: bytes) -> list[str]:
    reader = Texts()
    reader.feed(page.decode())
    return reader.found + [text for chart in reader.charts for text in words_of_chart(chart)]


def english(text: str, names: set[str]) -> list[str]:
    """Its words that are neither names nor the same in Chinese."""
    if WRITTEN_DOWN.search(text):
        return []
    without_addresses = re.sub(
        r"\S+://\S+|[0-9a-f-]{16,}|--[a-z-]+|\S*[/_]\S*(?=[A-Za-z])\S*", " ", text
    )
    return [
        word
        for word in WORD.findall(without_addresses)
        if word not in SAME_IN_CHINESE and word not in names
    ]


def left_in_english(client: Client, paths: list[str], names: set[str]) -> dict[str, str]:
    """Text -> where it was seen."""
    found = {}
    for path in paths:
        answer = client.get(path)
        assert answer.status_code == 200, path
        page = answer.content
        assert b'<html lang="zh-hans"' in page, path
        # what one types in a form, but no label
        found |= {text: path for text in texts(page) if text == "auto" or english(text, names)}
    return found


def chinese_reader(username: str) -> Client:
    client = Client()
    assert client.login(username=username, password=PASSWORD)
    client.cookies["language"] = "zh-hans"
    return client


@pytest.mark.slow
@pytest.mark.django_db
def test_pages_of_a_site_with_everything_in_it_leave_no_text_in_english() -> None:
    ids = make_world()
    names = {
        "tower", "laptop", "mini", "front", "big", "small", "home", "away", "uplink", "tiny-llama",
        "world-person", "world-serving", "world-trouble", "world-spare", "world-many", "extra",
        "world-model", "world-frayed", "world-torn", "world-instances", "whole", "host", "llama",
        "slow-answers", "ops", "world-night-shift",
    }  # fmt: skip
    paths = [path.format(**ids) for path in PAGES if path != "/settings/"]
    assert left_in_english(chinese_reader(ids["user"]), paths, names) == {}


@pytest.mark.django_db
def test_pages_of_an_empty_site_and_those_before_the_log_in_leave_no_text_in_english(
    django_user_model: Any,
) -> None:
    django_user_model.objects.create_superuser("ada", password=PASSWORD)
    paths = [path for path in EMPTY if path != "/settings/"]
    assert left_in_english(chinese_reader("ada"), paths, {"ada", "laptop"}) == {}
    stranger = Client()
    stranger.cookies["language"] = "zh-hans"
    assert left_in_english(stranger, ["/login/", "/login/link/x/"], set()) == {}
