"""Instances behind a coordinator: routed to, counted, drained, followed by another plan's."""

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from coordinator_doubles import RANGES, ScriptedStages, write_checkpoint
from front_rig import ask
from instance_group_rig import (
    KEY,
    OWNER,
    Coordinator,
    desired,
    served,
    three_letters,
    with_instances,
)
from instance_rig import wait_until

from runtime.protocol.control import (
    CoordinatorDesired,
    DrainProgress,
)
from runtime.protocol.instance_orders import PIPELINES


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint"))


def test_requests_go_to_instances_and_are_counted_as_those_of_pipelines() -> None:
    async def check(here: Coordinator) -> None:
        told = await here.ask(stream=True)
        assert told.status == 200
        assert told.headers["x-helix-instance"] in ("a", "b")
        whole = await here.ask()
        assert whole.status == 200
        assert here.stats.requests_total == 2
        assert here.stats.output_tokens_total == 6
        assert here.stats.prompt_tokens_total > 0
        report = here.report
        assert report.serving
        assert report.message == ""
        assert sum(one.answered_total for one in report.instances.values()) == 2
        assert sum(one.tokens_total for one in report.nodes.values()) > 0
        assert all(one.ready for one in report.nodes.values())

    with_instances({"a": "m", "b": "m"}, check)


@pytest.mark.parametrize("name", ["llama", "meta-llama/Llama-3.1-8B"])
def test_a_model_that_instances_serve_is_found_by_its_name(name: str) -> None:
    async def check(here: Coordinator) -> None:
        transport = httpx.ASGITransport(app=here.app)
        async with openai.AsyncOpenAI(
            base_url="http://coordinator/v1",
            api_key=KEY,
            max_retries=0,
            http_client=httpx.AsyncClient(transport=transport),
        ) as client:
            assert [model.id async for model in client.models.list()] == [name]
            assert (await client.models.retrieve(name)).id == name
            with pytest.raises(openai.NotFoundError, match="not served here") as caught:
                await client.models.retrieve("some/other")
        assert caught.value.code == "model_not_found"

    with_instances({"a": "m"}, check, model_name=name)


def test_without_instances_pipelines_answer(checkpoint: Path) -> None:
    async def check(here: Coordinator) -> None:
        here.serve()
        told = await here.ask()
        assert told.status == 200
        assert "x-helix-instance" not in told.headers
        report = here.report
        assert report.serving
        assert (report.instances, set(report.nodes)) == ({}, set(RANGES))

    with_instances({}, check, pipelines=three_letters(checkpoint))


def test_until_an_instance_says_where_it_answers_that_is_what_is_told() -> None:
    async def check(here: Coordinator) -> None:
        here.serve(total=2)
        assert not here.report.serving
        assert here.report.message == "no instance has told where it answers yet"

    with_instances({}, check)


def test_one_that_fails_is_routed_around_and_told_of() -> None:
    async def check(here: Coordinator) -> None:
        answers = [await here.ask() for _ in range(4)]
        assert {told.status for told in answers} == {200}
        assert {told.headers["x-helix-instance"] for told in answers} == {"b"}
        told = here.report.instances["a"]
        assert told.failed_total >= 1
        assert "500" in told.message
        assert not told.open  # it rests: by the clock of the test no time has passed

    with_instances({"a": "m:mode=errors", "b": "m"}, check, clock=lambda: 100.0)


@pytest.mark.parametrize("tokens", [-9, 10**17, "9", True])
@pytest.mark.parametrize("stream", [True, False])
def test_token_counts_that_cannot_be_are_counted_nowhere(tokens: object, stream: bool) -> None:
    async def check(here: Coordinator) -> None:
        usage = {"prompt_tokens": tokens, "completion_tokens": tokens}
        here.there["a"].engine.behaviour["usage"] = usage
        told = await here.ask(stream=stream)
        assert told.status == 200
        assert here.report.instances["a"].answered_total == 1
        assert here.report.instances["a"].output_tokens_total == (3 if stream else 0)
        assert here.stats.prompt_tokens_total == 0
        assert here.stats.spending.of(OWNER).prompt_tokens == 0

    with_instances({"a": "m"}, check)


def test_metrics_that_nobody_understands_are_told_with_the_instance() -> None:
    async def check(here: Coordinator) -> None:
        await wait_until(lambda: here.report.instances["a"].message)
        told = here.report.instances["a"]
        assert "no vllm:kv_cache_usage_perc or" in told.message
        assert told.open

    with_instances({"a": "m:metrics=v9"}, check)


def test_pipelines_are_one_more_instance_whose_requests_they_count_themselves(
    checkpoint: Path,
) -> None:
    async def check(here: Coordinator) -> None:
        told = [await here.ask(stream=True, max_tokens=4) for _ in range(3)]
        assert {each.headers["x-helix-instance"] for each in told} == {PIPELINES}
        assert len({each.text for each in told}) == 1
        assert len(told[0].text) == 3
        whole = await here.ask(max_tokens=4)
        assert whole.body["choices"][0]["text"] == told[0].text
        assert here.stats.output_tokens_total == 4 * 4  # with the stop token
        assert here.stats.spending.of(OWNER).output_tokens == 4 * 4
        assert here.report.instances[PIPELINES].answered_total == 4
        assert here.report.instances[PIPELINES].output_tokens_total == 3 * 3 + 4
        assert set(here.report.nodes) == set(RANGES)  # a is one of them
        assert here.pipelines.requests_here == 0

    with_instances({"a": "m:mode=errors"}, check, pipelines=three_letters(checkpoint))


def test_a_stream_of_pipelines_tells_usage_where_its_client_asked_for_it(checkpoint: Path) -> None:
    async def check(here: Coordinator) -> None:
        without = await here.ask(stream=True)
        assert not any(event.get("usage") for event in without.events)
        asked = await here.ask(stream=True, stream_options={"include_usage": True})
        (usage,) = [event["usage"] for event in asked.events if event.get("usage")]
        assert usage["completion_tokens"] == 3
        ignoring = await here.ask(stream=True, user="me")
        assert ignoring.headers.get("x-helixweb-ignored") == "user"

    with_instances({"a": "m:mode=errors"}, check, pipelines=three_letters(checkpoint))


def test_what_pipelines_refuse_is_refused_and_what_they_cannot_do_now_is_asked_elsewhere(
    checkpoint: Path,
) -> None:
    async def check(here: Coordinator) -> None:
        here.serve("a", draining=("a",))
        told = await here.ask(temperature=-1)
        assert told.status == 400
        assert told.instance == PIPELINES
        assert told.body["error"]["param"] == "temperature"
        here.pipelines.serve(None)
        here.serve("a")
        answers = [await here.ask() for _ in range(4)]
        assert {each.status for each in answers} == {200}
        assert {each.headers["x-helix-instance"] for each in answers} == {"a"}

    with_instances({"a": "m"}, check, pipelines=three_letters(checkpoint))


def test_pipelines_beside_instances_count_tokens_and_leave_embeddings_to_others(
    checkpoint: Path,
) -> None:
    async def check(here: Coordinator) -> None:
        asked = {"model": "llama", "input": "hello"}
        told = [await ask(here.app, "/v1/embeddings", asked) for _ in range(3)]
        assert {(each.status, each.instance) for each in told} == {(200, "a")}
        assert here.stats.spending.of(OWNER).prompt_tokens == 3 * 3
        here.serve("a", draining=("a",))
        counted = await ask(here.app, "/tokenize", {"model": "llama", "prompt": "hello"})
        assert (counted.instance, counted.body["count"]) == (PIPELINES, len("hello"))
        wrong = await ask(here.app, "/tokenize", {"model": "llama", "prompt": ["a"]})
        assert (wrong.status, wrong.instance) == (400, PIPELINES)
        none = await ask(here.app, "/v1/embeddings", asked)
        assert (none.status, none.body["error"]["code"]) == (404, "no_such_endpoint")

    with_instances({"a": "m:embeds=1"}, check, pipelines=three_letters(checkpoint))


def test_a_client_that_hangs_up_ends_its_request_in_the_pipelines(checkpoint: Path) -> None:
    endless = ScriptedStages(lambda _: [65] * 200)

    async def check(here: Coordinator) -> None:
        gone = asyncio.Event()
        asked = {"model": "llama", "prompt": "x", "max_tokens": 190, "stream": True}
        await ask(
            here.app,
            "/v1/completions",
            asked,
            hang_up=gone,
            hear=lambda piece: gone.set() if b"A" in piece else None,
        )
        assert here.pipelines.requests_here == here.service.requests_here == 0
        assert not endless.nodes_with_pages

    with_instances({"a": "m:mode=errors"}, check, pipelines=(endless, checkpoint))


def test_requests_of_instances_have_time_lines_and_pipelines_tell_their_own(
    checkpoint: Path,
) -> None:
    async def check(here: Coordinator) -> None:
        here.serve("a")
        await here.is_open("a", PIPELINES)
        await here.ask(stream=True)
        assert here.tracer.waiting() == ()  # stages are asked first
        here.serve("b", generation=2, stages={})
        await here.is_open("b")
        await here.ask(stream=True)
        (told,) = here.tracer.waiting()
        assert (told.outcome, told.generation, told.output_tokens) == ("stop", 2, 3)
        assert [stage.node for stage in told.pipeline] == ["b"]
        assert len(told.token_times_s) == 3
        assert abs(told.arrived_at - time.time()) < 60

    with_instances(
        {"a": "m:mode=errors", "b": "m"}, check, serves=(), pipelines=three_letters(checkpoint)
    )


def test_more_than_an_instance_takes_wait_in_the_coordinators_line() -> None:
    async def check(here: Coordinator) -> None:
        here.follow(desired(served("a", here.there["a"], most_requests=2)))
        await here.is_open("a")
        asking = [asyncio.create_task(here.ask(stream=True)) for _ in range(3)]
        await wait_until(lambda: here.report.requests_waiting == 1)
        assert here.report.instances["a"].requests == 2
        here.release("a")
        assert [(await one).status for one in asking] == [200] * 3

    with_instances({"a": "m:mode=held"}, check, serves=())


def test_a_drained_node_gets_no_requests_and_a_pause_holds_them_all() -> None:
    async def check(here: Coordinator) -> None:
        here.serve("a", "b", draining=("a",))
        for _ in range(3):
            assert (await here.ask()).headers["x-helix-instance"] == "b"
        progress = here.report.draining["a"]
        assert (progress.requests, progress.needed) == (0, False)
        here.serve("a", "b", paused=True)
        waiting = asyncio.create_task(here.ask())
        await wait_until(lambda: here.report.requests_waiting == 1)
        assert here.report.paused
        here.serve("a", "b")
        assert (await waiting).status == 200

    with_instances({"a": "m", "b": "m"}, check)


async def asked_long(here: Coordinator) -> asyncio.Task[Any]:
    """A request at the instance "old", which alone is served and holds its answers."""
    asking = asyncio.create_task(here.ask(stream=True))
    await wait_until(lambda: here.service.requests_here == 1)
    return asking


def test_the_plan_before_serves_on_until_the_next_ones_instances_are_up() -> None:
    async def check(here: Coordinator) -> None:
        long = await asked_long(here)
        here.serve("new", generation=2, total=2)
        assert (here.report.coming_generation, here.report.coming_missing) == (2, ("new",))
        group = here.service.serving
        assert group is not None
        assert group.plan.generation == 1
        here.serve("new", "newer", generation=2)
        await here.is_open("new", "newer")
        assert (await here.ask()).headers["x-helix-instance"] in ("new", "newer")
        assert (here.report.leaving_generation, here.report.leaving_requests) == (1, 1)
        here.release("old")
        assert (await long).status == 200
        await wait_until(lambda: here.report.leaving_generation is None)

    with_instances({"old": "m:mode=held", "new": "m", "newer": "m"}, check, serves=("old",))


@pytest.mark.parametrize("next_instances", [True, False])
def test_requests_of_a_plan_before_keep_their_node_from_being_free(next_instances: bool) -> None:
    """By instances or by pipelines alone, which know nothing of them."""

    async def check(here: Coordinator) -> None:
        long = await asked_long(here)
        if next_instances:
            here.serve("old", "new", generation=2, draining=("old",))
            await here.is_open("new")
        else:
            here.follow(CoordinatorDesired(generation=2, draining=("old",)))
        report = here.report
        assert (report.leaving_generation, report.leaving_requests) == (1, 1)
        assert report.draining == {"old": DrainProgress(requests=1, needed=False)}
        here.release("old")
        assert (await long).status == 200
        await wait_until(lambda: here.report.leaving_generation is None)
        assert here.report.draining["old"].requests == 0

    with_instances({"old": "m:mode=held", "new": "m"}, check, serves=("old",))


def test_the_same_again_changes_nothing_and_nothing_ends_all() -> None:
    async def check(here: Coordinator) -> None:
        group = here.service.serving
        here.serve("a")
        assert here.service.serving is group
        here.service.serve(None)
        assert here.service.serving is None
        assert (await here.ask()).status == 503

    with_instances({"a": "m"}, check)


def test_a_close_refuses_new_requests_with_a_word_to_come_back() -> None:
    async def check(here: Coordinator) -> None:
        here.service.close()
        told = await here.ask()
        assert told.status == 503
        assert told.body["error"]["code"] == "stopping"

    with_instances({"a": "m"}, check)
