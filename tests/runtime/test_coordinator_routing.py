"""The coordinator's routers: chosen by name, apart by component, carried over between plans."""

from collections import Counter
from pathlib import Path

import pytest
from coordinator_doubles import (
    RANGES,
    WEIGHTS,
    Clock,
    ScriptedStages,
    make_dispatcher,
    make_serving,
    serving_plan,
    write_checkpoint,
)

from planner.domain.cluster import SINK, SOURCE
from planner.domain.errors import InvalidPlacement
from planner.domain.placement import LayerRange, Placement
from runtime.coordinator.dispatcher import Dispatcher
from runtime.coordinator.live_request import LiveRequest
from runtime.coordinator.options import parse_options
from runtime.coordinator.serving import Serving
from runtime.protocol.control import ServingPlan
from runtime.protocol.data import Sampling

APART = Placement(
    layers={name: LayerRange(first=first, end=end) for name, (first, end) in RANGES.items()},
    components=(frozenset({"a", "d"}), frozenset({"b", "c"})),
)
APART_WEIGHTS = {
    SOURCE: {"a": 2.0, "b": 1.0},
    "a": {"d": 1.0},
    "b": {"c": 1.0},
    "c": {SINK: 1.0},
    "d": {SINK: 1.0},
}
LARGE, SMALL = 40, 4  # tokens of a prompt


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "checkpoint")


def serve(
    checkpoint: Path, *, pages: dict[str, int], **plan: object
) -> tuple[Dispatcher, Serving, ScriptedStages]:
    stages = ScriptedStages(lambda prompt: [60, 257])
    dispatcher, _ = make_dispatcher(stages, clock=Clock())
    serving = make_serving(checkpoint, max_queued_requests=20, **plan)
    dispatcher.serve(serving)
    for node, room in pages.items():
        stages.report(node, pages=room)
    return dispatcher, serving, stages


def submit(dispatcher: Dispatcher, serving: Serving, *, prompt_tokens: int) -> LiveRequest:
    return dispatcher.submit(
        serving,
        prompt_ids=list(range(10, 10 + prompt_tokens)),
        sampling=Sampling(
            temperature=0, top_p=1, top_k=0, seed=1, max_tokens=4, stop_token_ids=(257,)
        ),
        stop_strings=(),
    )


def first_node(request: LiveRequest) -> str | None:
    return None if request.pipeline is None else request.pipeline.stages[0].node


# A large request takes 11 pages of 4 tokens for each layer, a small one 2.
def test_a_full_component_never_blocks_the_other(checkpoint: Path) -> None:
    dispatcher, serving, stages = serve(
        checkpoint,
        pages={"a": 50, "d": 50, "b": 1000, "c": 20},
        placement=APART,
        routing_weights=APART_WEIGHTS,
    )
    large = [submit(dispatcher, serving, prompt_tokens=LARGE) for _ in range(2)]
    assert [first_node(request) for request in large] == ["a", None]  # c never holds one
    small = [submit(dispatcher, serving, prompt_tokens=SMALL) for _ in range(3)]
    assert [first_node(request) for request in small] == ["b", "b", None]
    stages.step(), stages.step()  # all that run end, and let in whom they kept out
    assert first_node(large[1]) == "a"
    assert first_node(small[2]) == "b"


def test_within_a_component_nobody_passes_a_large_request(checkpoint: Path) -> None:
    dispatcher, serving, _ = serve(checkpoint, pages={"a": 50, "b": 26, "c": 50, "d": 26})
    requests = [submit(dispatcher, serving, prompt_tokens=LARGE) for _ in range(3)]
    waiting = [request for request in requests if request.pipeline is None]
    assert waiting
    assert submit(dispatcher, serving, prompt_tokens=SMALL).pipeline is None


def test_routes_stay_in_their_component(checkpoint: Path) -> None:
    dispatcher, serving, _ = serve(
        checkpoint,
        pages=dict.fromkeys(RANGES, 10_000),
        placement=APART,
        routing_weights=APART_WEIGHTS,
    )
    requests = [submit(dispatcher, serving, prompt_tokens=SMALL) for _ in range(9)]
    paths = Counter(
        tuple(stage.node for stage in request.pipeline.stages)
        for request in requests
        if request.pipeline is not None
    )
    assert paths == {("a", "d"): 6, ("b", "c"): 3}
    with pytest.raises(InvalidPlacement, match="must stay within a component"):
        make_serving(checkpoint, placement=APART, routing_weights=WEIGHTS)


def test_a_serving_plan_keeps_its_components_on_the_wire(checkpoint: Path) -> None:
    plan = serving_plan(checkpoint, placement=APART, routing_weights=APART_WEIGHTS)
    assert ServingPlan.model_validate_json(plan.model_dump_json()) == plan
    assert ServingPlan.model_validate(plan.model_dump(mode="json")).placement == APART


def test_another_plan_goes_on_where_the_one_before_stood(checkpoint: Path) -> None:
    def firsts(*, replaced_after: int) -> list[str | None]:
        """The first nodes of 9 requests, the plan being replaced by an equal one on the way."""
        dispatcher, serving, stages = serve(checkpoint, pages=dict.fromkeys(RANGES, 10_000))
        nodes, requests = [], []
        for number in range(9):
            if number == replaced_after:
                for request in requests:
                    dispatcher.end(request)  # else they take turns of the plan that replaces theirs
                serving = make_serving(checkpoint, generation=8)
                dispatcher.serve(serving)
                stages.generation = 8
                stages.report()
            requests.append(submit(dispatcher, serving, prompt_tokens=SMALL))
            nodes.append(first_node(requests[-1]))
        return nodes

    assert all(firsts(replaced_after=number) == firsts(replaced_after=9) for number in range(9))


def test_the_router_is_chosen_on_the_command_line(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needed = ["--server", "http://127.0.0.1:1", "--data-dir", "/nowhere"]
    assert parse_options(needed).router == "iwrr"
    chosen = parse_options([*needed, "--router", "round_robin"]).router
    dispatcher, serving, _ = serve(checkpoint, pages=dict.fromkeys(RANGES, 10_000), router=chosen)
    firsts = [first_node(submit(dispatcher, serving, prompt_tokens=SMALL)) for _ in range(4)]
    assert firsts == ["a", "b", "a", "b"]
    with pytest.raises(SystemExit):
        parse_options([*needed, "--router", "best"])
    assert "'weighted_round_robin'" in capsys.readouterr().err
