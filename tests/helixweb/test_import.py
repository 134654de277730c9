"""A problem file becomes a cluster, by form or REST; a bad one becomes nothing and says why."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from rest_framework.test import APIClient

from helixweb.inventory.models import Cluster, LanguageModel, Link, Node, Profile
from helixweb.inventory.services import problems
from planner.serialization import problem_from_dict, problem_to_dict
from planner.timing import timing_source
from tests.helixweb.looking import answered, contains, denied

Problem = dict[str, Any]


def nothing_is_stored() -> bool:
    return not any(
        kind._base_manager.exists() for kind in (Cluster, Node, Link, Profile, LanguageModel)
    )


def with_an_unknown_profile(problem: Problem) -> None:
    problem["nodes"][0]["compute_profile"] = "H100"


def with_a_name_that_is_too_long(problem: Problem) -> None:
    problem["name"] = "n" * 65


def with_a_control_character(problem: Problem) -> None:
    problem["nodes"][0]["region"] = "ho\u0000me"


BAD: list[tuple[Callable[[Problem], None], tuple[str, ...]]] = [
    (with_an_unknown_profile, ("H100", "big, small")),
    (with_a_name_that_is_too_long, ("name", "64")),
    (with_a_control_character, ("region", "control character")),
]


@pytest.mark.parametrize(("spoil", "said"), BAD, ids=[spoil.__name__ for spoil, _ in BAD])
def test_a_bad_file_is_refused_by_rest_with_a_problem_document(
    api: APIClient, tiny_problem: Problem, spoil: Callable[[Problem], None], said: tuple[str, ...]
) -> None:
    spoil(tiny_problem)
    for body in ({"problem": tiny_problem}, {"text": json.dumps(tiny_problem)}):
        answer = answered(api.post("/api/v1/clusters/import/", body), 400)
        assert answer.headers["Content-Type"] == "application/problem+json"
        contains(answer.json()["detail"], *said)
    assert nothing_is_stored()


def test_the_form_refuses_a_bad_file_and_keeps_it(browser: Client, tiny_problem: Problem) -> None:
    with_an_unknown_profile(tiny_problem)
    text = json.dumps(tiny_problem, indent=1)
    for sent in ({"text": text}, {"file": SimpleUploadedFile("bad.json", text.encode())}):
        page = answered(browser.post("/clusters/import", sent), 422)
        form = page.context["form"]
        assert "H100" in form.errors["text"][0]
        assert form["text"].value() == text
    assert nothing_is_stored()


def test_a_good_file_is_stored_whole(browser: Client, tiny_problem: Problem) -> None:
    file = SimpleUploadedFile("tiny.yaml", yaml.safe_dump(tiny_problem).encode())
    answer = browser.post("/clusters/import", {"file": file})
    cluster = Cluster.unscoped.get()
    assert answer.headers["Location"] == f"/clusters/{cluster.pk}/"
    assert problems.build_problem(cluster, LanguageModel.objects.get()) == problem_from_dict(
        tiny_problem
    )


def test_measured_times_and_prices_are_kept(api: APIClient, measured_problem: Problem) -> None:
    answered(api.post("/api/v1/clusters/import/", {"problem": measured_problem}), 201)
    cluster, expected = Cluster.unscoped.get(), problem_from_dict(measured_problem)
    built = problems.build_problem(cluster, LanguageModel.objects.get())
    assert built == expected
    assert timing_source(built) == "measured"
    exported = api.get(f"/api/v1/clusters/{cluster.pk}/problem/").json()
    assert exported == json.loads(json.dumps(problem_to_dict(expected)))


def test_known_names_are_refused(api: APIClient, cluster: Cluster, tiny_problem: Problem) -> None:
    def imported(**more: Any) -> Any:
        return api.post("/api/v1/clusters/import/", {"problem": tiny_problem, **more})

    denied(imported(), 409, "'tiny'", "another name")
    assert imported(name="second").json()["name"] == "second"
    tiny_problem["model"]["num_layers"] = 8
    denied(imported(name="third"), 409, "num_layers 4 there, 8 here")
    assert (Cluster.unscoped.count(), Node.unscoped.count()) == (2, 6)
    assert LanguageModel.objects.count() == 1


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, ""),
        ({"text": "{}", "problem": {}}, ""),
        ({"text": "{}", "yaml": "x"}, "yaml"),
        ({"problem": [1]}, "problem"),
    ],
)
def test_a_misshapen_request_is_refused(api: APIClient, body: dict[str, Any], field: str) -> None:
    answer = answered(api.post("/api/v1/clusters/import/", body), 400)
    assert answer.json()["errors"][0]["field"] == field
    assert nothing_is_stored()


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (SimpleUploadedFile("p.json", b"\xff\xfe\x00"), "not UTF-8"),
        (SimpleUploadedFile("p.json", b" " * 8_000_001), "8,000,001 bytes"),
        (SimpleUploadedFile("p.exe", b"MZ"), "exe"),
        (None, "Choose a file"),
    ],
)
def test_a_file_that_cannot_be_one_is_refused(browser: Client, file: Any, said: str) -> None:
    page = answered(browser.post("/clusters/import", {"file": file} if file else {}), 422)
    assert said in page.context["form"].errors["file"][0]
