"""Two coordinators serve the same stages, one is killed: the other's clients notice nothing."""

import random
from pathlib import Path

import pytest

from tests.e2e.two_fronts import FRONTS, STAGES, RoundRobin, TwoFronts, round_robin, two_fronts

pytestmark = pytest.mark.e2e

LONG, SHORT = 400, 10


def test_one_of_two_coordinators_may_die_at_any_moment(tmp_path: Path) -> None:
    dice = random.Random(3)
    prompts = [[dice.randrange(5, 260) for _ in range(40)] for _ in range(2)]
    with two_fronts(tmp_path) as fronts, round_robin([*fronts.urls.values()]) as front:
        first, second = (fronts.urls[name] for name in FRONTS)
        undisturbed = [fronts.ask(first, prompt, tokens=LONG) for prompt in prompts]
        answers = [stream.answer() for stream in undisturbed]
        assert min(map(len, answers)) > 100, "they are long enough to be disturbed"
        while not all(map(fronts.most_pages, STAGES)):  # which are told once a second
            again = [fronts.ask(first, prompt, tokens=LONG) for prompt in prompts]
            assert [stream.answer() for stream in again] == answers
        asked_again = clients_of(front, fronts, prompts[0], answers[0])
        assert (asked_again, front.behind) == (0, 2)

        ours = [fronts.ask(first, prompt, tokens=LONG) for prompt in prompts]
        theirs = [fronts.ask(second, prompt, tokens=LONG) for prompt in prompts]
        fronts.until(lambda: all(stream.token_ids for stream in (*ours, *theirs)), "all stream")
        fronts.kill(FRONTS[1])
        asked_again = clients_of(front, fronts, prompts[0], answers[0])
        assert (asked_again, front.behind) == (0, 1)
        assert [stream.answer() for stream in ours] == answers
        for stream, answer in zip(theirs, answers, strict=True):
            stream.thread.join()
            assert stream.token_ids == answer[: len(stream.token_ids)]
            assert len(stream.token_ids) < len(answer), "it died before"
        fronts.until(lambda: fronts.says("'coordinator:2' is lost"), "the stages know of it")
        fronts.until(lambda: fronts.pages_held() == 0, "nobody holds a page")
        assert_no_stage_noticed(fronts)


def clients_of(front: RoundRobin, fronts: TwoFronts, prompt: list[int], answer: list[int]) -> int:
    """A few are answered; how many had to ask again, as their coordinator died with them."""
    asked_again = 0
    for _ in range(4):
        stream = fronts.ask(front.url, prompt, tokens=SHORT)
        stream.thread.join()
        if stream.error:
            asked_again += 1
            stream = fronts.ask(front.url, prompt, tokens=SHORT)
        assert stream.answer() == answer[:SHORT]
    return asked_again


def assert_no_stage_noticed(fronts: TwoFronts) -> None:
    """There were pages for all, and no request but the dead one's was forgotten."""
    for stage in STAGES:
        told = fronts.stats(stage)
        assert fronts.most_pages(stage) > 0
        assert all(stats["kv_pages_used"] <= stats["kv_pages_total"] for stats in told)
        assert "'coordinator' is lost" not in fronts.log(stage)
