"""What takes long to compute is computed one at a time for each person."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client
from rest_framework.test import APIClient

from helixweb.common import own_turns
from helixweb.planning.models import Plan
from tests.helixweb.looking import api_of

WITHIN_S = 60.0


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_turns, "WAITS_S", 0.01)


@pytest.fixture
def spawn() -> Iterator[Callable[[Callable[[], None]], None]]:
    threads: list[threading.Thread] = []

    def start(run: Callable[[], None]) -> None:
        threads.append(threading.Thread(target=run))
        threads[-1].start()

    yield start
    for thread in threads:
        thread.join(WITHIN_S)
        assert not thread.is_alive()


def test_what_one_person_asks_for_at_once_is_done_one_after_the_other_and_of_many_none(
    spawn: Callable[[Callable[[], None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_turns, "WAITS_S", WITHIN_S)
    done, at_work = [], threading.Semaphore(0)
    lock = threading.Lock()

    def work() -> None:
        with own_turns.turn(1):
            assert lock.acquire(blocking=False)  # no other is within
            done.append(1)
            lock.release()
            at_work.release()

    with own_turns.turn(1):
        _, places = own_turns._TURNS[1]
        for _ in range(own_turns.MOST_WAITING):
            spawn(work)
        until = time.monotonic() + WITHIN_S
        while places._value and time.monotonic() < until:
            time.sleep(0.001)
        with pytest.raises(own_turns.NotYourTurn), own_turns.turn(1):
            pass
        with own_turns.turn(2):  # another user
            assert done == []
    for _ in range(own_turns.MOST_WAITING):
        assert at_work.acquire(timeout=WITHIN_S)
    assert len(done) == own_turns.MOST_WAITING


@pytest.mark.usefixtures("impatient")
def test_no_wait_is_for_ever_and_what_fails_gives_its_turn_back() -> None:
    for _ in range(2 * own_turns.MOST_WAITING):
        with own_turns.turn(1), pytest.raises(own_turns.NotYourTurn), own_turns.turn(1):
            pass
        with pytest.raises(ZeroDivisionError), own_turns.turn(1):
            raise ZeroDivisionError
    with own_turns.turn(1):
        pass


@pytest.mark.usefixtures("impatient")
def test_figures_comparisons_and_what_is_unmoved_wait_for_each_other(
    plan: Plan, user: Any, api: APIClient, browser: Client, django_user_model: Any
) -> None:
    address = f"/api/v1/plans/{plan.pk}"
    compared = f"plan={plan.pk}&plan={plan.pk}"
    asked = [
        f"{address}/figures/flow/",
        f"{address}/unmoved/",
        f"/api/v1/plans/compare/?{compared}",
    ]
    pages = [
        f"/plans/compare?{compared}",
        f"/plans/by-id/{plan.pk}/replan",
        f"/plans/new/fit?cluster={plan.cluster_id}&model={plan.model_id}",
    ]
    with own_turns.turn(user.pk):
        for one in asked:
            refused = api.get(one)
            assert (refused.status_code, refused["Retry-After"]) == (429, "2"), one
            assert refused.json()["type"] == "about:blank#not_your_turn"
        for page in pages:
            refused = browser.get(page)
            assert (refused.status_code, refused["Retry-After"]) == (429, "2"), page
        other = api_of(django_user_model.objects.create_superuser("otto"))
        assert other.get(asked[0]).status_code == 200
        assert api.get(f"{address}/").status_code == 200  # what is quick
    for one in asked[:2]:
        assert api.get(one).status_code == 200, one
