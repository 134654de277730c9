"""Pages in Simplified Chinese: all that is marked is translated, for who asks for it, and no
English words are left but names and what was written down."""

import ast
import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import translation
from django.utils.translation.template import templatize
from django.utils.translation.trans_real import DjangoTranslation

from tests.e2e.pages import EMPTY, PAGES
from tests.e2e.site_world import PASSWORD
from tests.helixweb.everything import make_world
from tests.helixweb.looking import contains, shows

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "locale" / "zh_Hans" / "LC_MESSAGES"
PACKAGES = ("helixweb", "runtime", "planner")
MARKS = {"_", "gettext", "gettext_lazy", "gettext_noop", "ngettext"}
LITERAL = r"u?('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
IN_TEMPLATES = re.compile(rf"\b(?:_|n?gettext)\({LITERAL}")
IN_SCRIPTS = re.compile(rf"\bn?gettext\({LITERAL}")
STRING = re.compile(r'^"((?:[^"\\]|\\.)*)"$', re.MULTILINE)
PLACEHOLDER = re.compile(r"%\(\w+\)s|\{\w+\}|%\{[^}]+\}")
TAG = re.compile(r"</?[a-z]+")


def marked_in_templates() -> Iterator[str]:
    for page in (ROOT / "templates").rglob("*.html"):
        yield from (
            ast.literal_eval(text) for text in IN_TEMPLATES.findall(templatize(page.read_text()))
        )


def marked_in_python() -> Iterator[str]:
    for file in (file for name in PACKAGES for file in (ROOT / name).rglob("*.py")):
        for call in calls_in(file):
            first = call.args[0] if call.args else None
            if named(call) in MARKS and isinstance(first, ast.Constant):
                yield str(first.value)


def texts_of_options() -> Iterator[str]:
    """Labels, helps, units and words of what is declared as an option."""
    for file in [*(ROOT / "planner").rglob("*.py"), *(ROOT / "helixweb").rglob("*.py")]:
        for call in calls_in(file):
            if named(call) == "Option":
                told = {word.arg: word.value for word in call.keywords}
                choices = told.get("choices", ast.Dict([], []))
                if isinstance(choices, ast.Name):
                    module = import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
                    yield from getattr(module, choices.id).values()
                    choices = ast.Dict([], [])
                assert isinstance(choices, ast.Dict), "written out or named, to be found here"
                shown = [*call.args, told.get("unit"), *choices.values]
                yield from (str(text.value) for text in shown if isinstance(text, ast.Constant))


@cache
def nodes_in(file: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(file.read_text())))


def calls_in(file: Path) -> Iterator[ast.Call]:
    return (node for node in nodes_in(file) if isinstance(node, ast.Call))


def named(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def marked_in_scripts() -> Iterator[str]:
    for script in (ROOT / "static" / "js").glob("*.js"):
        yield from (ast.literal_eval(text) for text in IN_SCRIPTS.findall(script.read_text()))


def entries(domain: str) -> dict[str, str]:
    """What the catalogue's source says, by the English text."""
    found = {}
    for entry in (FOLDER / f"{domain}.po").read_text().split("\n\n")[1:]:
        assert ", fuzzy" not in entry, entry
        original, _, said = re.sub(r"^#.*\n", "", entry, flags=re.M).partition("\nmsgstr")
        original = original.partition("\nmsgid_plural")[0]
        found[joined(original.removeprefix("msgid "))] = joined(re.sub(r"^(\[0\])? ", "", said))
    return found


def joined(quoted: str) -> str:
    return "".join(ast.literal_eval(f'"{part}"') for part in STRING.findall(quoted))


@pytest.mark.parametrize(
    ("domain", "readers"),
    [
        ("django", (marked_in_templates, marked_in_python, texts_of_options)),
        ("djangojs", (marked_in_scripts,)),
    ],
)
def test_the_catalogue_has_all_that_is_marked_and_no_more(
    domain: str, readers: tuple[Callable[[], Iterator[str]], ...]
) -> None:
    marked = {text for reader in readers for text in reader()}
    found = entries(domain)
    assert marked - set(found) == set()
    assert set(found) - marked == set(), "nobody says this any more"
    assert [text for text, said in found.items() if not said] == []


def words_beside_marks(value: ast.expr) -> Iterator[str]:
    """Constants with words in them that may become the value and are not marked."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield from re.findall(".*[A-Za-z]{2}.*", value.value)
    elif isinstance(value, ast.IfExp):
        yield from words_beside_marks(value.body)
        yield from words_beside_marks(value.orelse)
    elif isinstance(value, ast.BoolOp | ast.JoinedStr):
        for part in value.values:
            yield from words_beside_marks(part)


def test_no_english_is_put_into_a_translated_sentence() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{node.lineno}: {word}"
        for file in (ROOT / "helixweb").rglob("*.py")
        for node in nodes_in(file)
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Mod)
        and isinstance(node.left, ast.Call)
        and isinstance(node.left.func, ast.Name)
        and node.left.func.id in MARKS
        and isinstance(node.right, ast.Dict)
        for value in node.right.values
        for word in words_beside_marks(value)
    ]
    assert found == []


def test_no_script_shows_words_that_are_not_marked() -> None:
    unmarked = re.compile(r'(?<!gettext\()"[a-z]+(?: [a-z]+)+"(?!:)')
    found = [
        line.strip()
        for script in (ROOT / "static" / "js").glob("*.js")
        for line in script.read_text().splitlines()
        if unmarked.search(line) and "use strict" not in line and "className" not in line
    ]
    assert found == []


@pytest.mark.parametrize("domain", ["django", "djangojs"])
def test_a_translation_has_the_values_and_tags_of_its_original(domain: str) -> None:
    for text, said in entries(domain).items():
        assert sorted(PLACEHOLDER.findall(said)) == sorted(PLACEHOLDER.findall(text)), text
        assert sorted(TAG.findall(said)) == sorted(TAG.findall(text)), text


@pytest.mark.parametrize("domain", ["django", "djangojs"])
def test_the_compiled_catalogue_is_of_its_source(domain: str) -> None:
    compiled = DjangoTranslation("zh-hans", domain=domain)
    for text, said in entries(domain).items():
        plural = compiled.ngettext(text, text, 2)
        assert said in (compiled.gettext(text), plural), f"compile anew (msgfmt): {text}"


@pytest.mark.parametrize("asked", ["", "xx", "zh-hans"])
def test_pages_speak_the_language_that_was_chosen(browser: Client, asked: str) -> None:
    browser.cookies["language"] = asked
    page = browser.get("/nodes/").content.decode()
    if asked == "zh-hans":
        contains(page, '<html lang="zh-hans"', "<h1>节点</h1>", "/texts.js?language=zh-hans")
    else:
        contains(page, '<html lang="en"', "<h1>Nodes</h1>")
        assert '"/texts.js' not in page, "nothing to fetch where nothing is translated"


def test_scripts_get_their_texts_in_the_readers_language(browser: Client) -> None:
    browser.cookies["language"] = "zh-hans"
    answer = browser.get("/texts.js?language=zh-hans")
    assert answer["Content-Type"].startswith("text/javascript")
    assert r"\u5df2\u590d\u5236" in answer.content.decode(), "Copied"
    with translation.override("en"):
        assert browser.get("/texts.js").status_code == 200


def test_a_language_is_kept_and_let_go_of_again(browser: Client) -> None:
    shows(browser.post("/settings/", {"language": "zh-hans"}, follow=True), "设置")
    shows(browser.post("/settings/", {"language": ""}, follow=True), "Settings")


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
def test_pages_of_an_empty_site_leave_no_text_in_english(
    django_user_model: Any,
) -> None:
    django_user_model.objects.create_superuser("ada", password=PASSWORD)
    paths = [path for path in EMPTY if path != "/settings/"]
    assert left_in_english(chinese_reader("ada"), paths, {"ada", "laptop"}) == {}
    stranger = Client()
    stranger.cookies["language"] = "zh-hans"
    assert left_in_english(stranger, ["/login/", "/login/link/x/"], set()) == {}
