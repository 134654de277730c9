"""Names that are markup, in every column that people and machines may fill: shown, never obeyed."""

import csv
import io
import json
import re
from datetime import timedelta
from html.parser import HTMLParser
from typing import Any

import pytest
from django.apps import apps
from django.core.cache import cache
from django.db import models
from django.test import Client
from django.urls import reverse

from helixweb.inventory.models import Change, Cluster, Node
from tests.e2e.pages import PAGES
from tests.helixweb.everything import make_world
from tests.helixweb.looking import browser_of

# Breaks out of text, of attributes with either quote, and of scripts; each says who it was.
MARKUP = "\"'></script><b data-taken>"
# Words of the world, which become rude wherever they stand: rows, plans, logs, samples.
WORDS = ("tower", "laptop", "home", "big", "small", "A100", "T4", "tiny-llama")
SCRIPT_ADDRESS = re.compile(r"^\s*(javascript|data|vbscript):", re.IGNORECASE)


def rude(text: str) -> str:
    for word in WORDS:
        text = re.sub(rf"(?<![\w-]){word}(?![\w-])", lambda found: f"{found[0]}{MARKUP}", text)
    return text


def rude_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {rude(key): rude_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rude_json(item) for item in value]
    return rude(value) if isinstance(value, str) else value


def spoil_everything() -> int:
    """Past all validation, as whoever writes to the database could; how many rows."""
    spoilt = 0
    for model in apps.get_models():
        texts = [
            field.attname
            for field in model._meta.concrete_fields
            if isinstance(field, models.CharField | models.TextField | models.JSONField)
            and not field.choices
        ]
        for row in model._base_manager.all() if texts else ():
            kept = {name: getattr(row, name) for name in texts}
            changed = {name: rude_json(value) for name, value in kept.items()}
            if changed != kept:
                if hasattr(row, "created_at"):  # part of what names a plan that is kept
                    changed["created_at"] = row.created_at + timedelta(seconds=1)
                model._base_manager.filter(pk=row.pk).update(**changed)
                spoilt += 1
    return spoilt


class Obeyed(HTMLParser):
    """What of a page is markup that a name brought, or an address that is a script."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if "data-taken" in name or name.startswith("on"):
                self.found.append(f"<{tag} {name}>")
            if name in ("href", "src", "action") and SCRIPT_ADDRESS.match(value or ""):
                self.found.append(f"<{tag} {name}={value!r}>")


@pytest.fixture
def world(db: None) -> dict[str, Any]:
    made = make_world()
    assert spoil_everything() > 50
    cache.clear()
    return made


@pytest.fixture
def visitor(world: dict[str, Any], django_user_model: Any) -> Client:
    return browser_of(django_user_model.objects.get(username=world["user"]))


@pytest.mark.slow
def test_no_name_is_markup_on_any_page(visitor: Client, world: dict[str, Any]) -> None:
    shown = []
    for address in PAGES:
        path = address.format(**world)
        answer = visitor.get(path)
        assert answer.status_code == 200, path
        names_the_only_scripts_that_may_run(answer)
        text = answer.content.decode()
        page = Obeyed()
        page.feed(text)
        assert page.found == [], path
        assert MARKUP not in text, path
        assert " style=" not in text, path
        assert " onclick=" not in text, path
        shown += [path] if "data-taken" in text else []
    assert len(shown) > 30, "names are to be seen, as text"


def names_the_only_scripts_that_may_run(answer: Any) -> None:
    policy = dict(
        part.strip().split(" ", 1)
        for part in answer.headers["Content-Security-Policy"].split(";")
        if " " in part.strip()
    )
    assert "unsafe-inline" not in policy["script-src"]
    assert "unsafe-eval" not in policy["script-src"]
    assert policy["object-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert policy["form-action"] == policy["connect-src"] == "'self'"


FORMULAS = ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\n=1", '=HYPERLINK("http://evil.example")')


@pytest.mark.parametrize("formula", FORMULAS)
def test_no_cell_of_a_csv_is_a_formula(browser: Client, cluster: Cluster, formula: str) -> None:
    Node.unscoped.filter(name="tower").update(name=formula, region=formula)
    Change.unscoped.update(name=formula)
    for path in ("nodes-csv", "changes-csv"):
        text = b"".join(browser.get(reverse(path))).decode()
        cells = [cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row]
        assert any(formula in cell for cell in cells), path
        assert not [cell for cell in cells if cell[:1] in "=+-@\t\r\n" and cell], path


def test_a_name_of_a_file_cannot_end_its_header(browser: Client, cluster: Cluster) -> None:
    Cluster.unscoped.update(name='x"\r\nSet-Cookie: theme=evil; filename="y')
    answer = browser.get(
        reverse("cluster-export", args=[cluster.pk, cluster.profiles.first().model_id])
    )
    assert answer.status_code in (200, 404, 409)
    assert "theme" not in answer.cookies
    assert "evil" not in json.dumps(dict(answer.headers))
