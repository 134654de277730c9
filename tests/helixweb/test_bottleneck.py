"""What limits a cluster is named: from made-up loads, and from what processes report."""

import re
import time
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.test import Client
from django.utils import translation
from rest_framework.test import APIClient

from helixweb.monitoring.bottleneck import Finding, Limit, bottleneck
from helixweb.monitoring.cluster_load import QUEUED_S, LinkLoad, Load, NodeLoad
from helixweb.monitoring.models import MetricSample
from planner.serialization import plan_from_dict
from runtime.protocol.phases import Phase
from tests.helixweb.looking import contains, statements
from tests.helixweb.process_doubles import STATS, FakeCluster

NAMES = ("a100", "l4", "t4")
CAPACITIES = {"a100": 1000.0, "l4": 400.0, "t4": 200.0}


def node(name: str, *, busy: float = 0.5, speed: float = 1.0, **changes: Any) -> NodeLoad:
    """As fast as the plan takes it to be, times `speed`."""
    capacity = CAPACITIES[name]
    load = NodeLoad(
        name=name,
        capacity_tokens_per_s=capacity,
        busy_ratio=busy,
        tokens_per_s=busy * capacity * speed,
        kv_used_ratio=0.3,
        kv_promised_ratio=0.4,
    )
    return replace(load, **changes)


def find(*nodes: NodeLoad, waiting: int = 0, running: int = 8, **links: float) -> Finding:
    transfers = {name.replace("_", " → "): ratio for name, ratio in links.items()}
    load = Load(nodes=nodes, running=running, waiting=waiting, transfer_ratios=transfers)
    return bottleneck(load)


@pytest.mark.parametrize("slow", NAMES)
@pytest.mark.parametrize("all_speeds", [0.3, 1.0, 3.0, None])
def test_a_node_at_half_speed_is_named(slow: str, all_speeds: float | None) -> None:
    """Also where all are faster or slower than their profiles, by batching or by mistake, and
    where (None) all share cores."""
    speeds = dict.fromkeys(NAMES, 1.0) | {slow: 0.5}
    if all_speeds is None:
        assert find(*(waiting_node(name) for name in NAMES)).limit == Limit.NOTHING
        found = find(*(waiting_node(name, own_speed=speed) for name, speed in speeds.items()))
    else:
        found = find(
            *(
                node(name, busy=0.5 / speed, speed=speed * all_speeds)
                for name, speed in speeds.items()
            )
        )
    assert (found.limit, found.subject) == (Limit.SLOW_NODE, slow)
    contains(found.headline, f"{slow} is slow", "50%")
    assert "replan" in found.advice


WAITS = {"a100": 0.2, "l4": 0.6, "t4": 0.5}  # of their steps, for cores that they share


def waiting_node(name: str, *, own_speed: float = 1.0, busy: float = 0.8) -> NodeLoad:
    """Does at `own_speed` what it does while it has a core."""
    seen = own_speed * (1 - WAITS[name])
    return node(name, busy=busy, speed=seen, delayed_ratio=busy * WAITS[name])


def test_a_machine_whose_nodes_want_more_cores_than_it_has_is_named() -> None:
    """None of them computes much, as each waits for the others."""
    crowded = [node(name, busy=0.4, delayed_ratio=0.132, host="box") for name in NAMES]
    found = find(*crowded, waiting=3)
    assert (found.limit, found.subject) == (Limit.CORES, "box")
    assert "wait for a core 33% of their time" in found.headline
    assert found.evidence == "Its nodes: a100, l4, t4. 3 requests wait."
    assert "fewer nodes" in found.advice


def test_machines_that_little_runs_on_are_not_short_of_cores() -> None:
    spread = [node(name, busy=0.4, delayed_ratio=0.13, host=name) for name in NAMES]
    assert find(*spread).limit == Limit.NOTHING
    waits_little = [node(name, busy=0.4, delayed_ratio=0.05, host="box") for name in NAMES]
    assert find(*waits_little).limit == Limit.NOTHING


def test_a_node_whose_cores_others_have_is_slow_and_told_why() -> None:
    alone = [node(name, busy=0.7, delayed_ratio=0.01) for name in NAMES[:2]]
    found = find(*alone, node("t4", busy=0.9, speed=0.4, delayed_ratio=0.54))
    assert (found.limit, found.subject) == (Limit.SLOW_NODE, "t4")
    assert "It waits for a core for 60% of that" in found.evidence


def test_a_slow_node_is_named_before_the_requests_that_pile_up_for_it() -> None:
    nodes = [node(name, kv_used_ratio=0.95, busy=0.5) for name in NAMES[:2]]
    found = find(*nodes, node("t4", busy=1.0, speed=0.5, kv_used_ratio=0.97), waiting=9)
    assert (found.limit, found.subject) == (Limit.SLOW_NODE, "t4")
    assert "9 requests wait" in found.evidence


@pytest.mark.parametrize("slow", NAMES)
def test_nodes_with_small_batches_are_not_slow_if_steps_take_what_they_should(slow: str) -> None:
    """A step of one token takes nearly as long as one of many, on each node in its own measure."""
    speeds = {"a100": 0.1, "l4": 0.3, "t4": 0.05}
    loads = [
        node(name, busy=0.8, speed=speeds[name], expected_busy_ratio=0.8 * 1.1) for name in NAMES
    ]
    assert find(*loads).limit == Limit.NOTHING
    halved = [
        replace(load, expected_busy_ratio=0.4) if load.name == slow else load for load in loads
    ]
    found = find(*halved)
    assert (found.limit, found.subject) == (Limit.SLOW_NODE, slow)


@pytest.mark.parametrize(("speed", "named"), [(0.64, True), (0.66, False)])
@pytest.mark.parametrize("times", [True, False])
def test_a_node_is_slow_below_the_threshold_alone(speed: float, named: bool, times: bool) -> None:
    loads = [
        node(
            name,
            busy=0.7,
            speed=speed if name == "l4" else 1.0,
            expected_busy_ratio=0.7 * (speed if name == "l4" else 1.0) if times else None,
        )
        for name in NAMES
    ]
    assert (find(*loads).limit == Limit.SLOW_NODE) is named


@pytest.mark.parametrize(
    ("change", "waiting", "named"),
    [
        ({"kv_used_ratio": 0.901}, 0, True), ({"kv_used_ratio": 0.899}, 0, False),
        ({"kv_promised_ratio": 0.851}, 0, True), ({"kv_promised_ratio": 0.849}, 0, False),
        ({"kv_promised_ratio": 0.751}, 1, True), ({"kv_promised_ratio": 0.749}, 1, False),
    ],
)  # fmt: skip
def test_a_kv_cache_is_nearly_full_above_the_threshold_and_not_below(
    change: dict[str, float], waiting: int, named: bool
) -> None:
    found = find(node("a100"), node("l4", **change), node("t4"), waiting=waiting)
    assert (found.limit == Limit.KV_CACHE) is named


def test_a_slow_node_with_time_to_spare_limits_nothing() -> None:
    found = find(node("a100"), node("l4"), node("t4", busy=0.55, speed=0.5))
    assert found.limit == Limit.NOTHING
    other = find(node("a100", busy=0.8), node("l4"), node("t4", busy=0.6, speed=0.5))
    assert other.limit == Limit.NOTHING


def test_a_slow_node_is_named_though_the_stages_of_few_requests_take_turns() -> None:
    found = find(node("a100", busy=0.7), node("l4", busy=0.4), node("t4", busy=0.65, speed=0.5))
    assert (found.limit, found.subject) == (Limit.SLOW_NODE, "t4")


@pytest.mark.parametrize("full", NAMES)
@pytest.mark.parametrize(
    "kv", [{"kv_used_ratio": 0.96}, {"kv_promised_ratio": 0.9}, {"kv_used_ratio": None,
    "kv_promised_ratio": 0.88}]
)  # fmt: skip
def test_a_kv_cache_that_is_nearly_full_is_named(full: str, kv: dict[str, float | None]) -> None:
    found = find(*(node(name, **(kv if name == full else {})) for name in NAMES), waiting=3)
    assert (found.limit, found.subject) == (Limit.KV_CACHE, full)
    assert f"KV cache of {full} is nearly full" in found.headline
    contains(found.evidence, "3 requests wait", "Computing is not what limits")


def test_a_full_kv_cache_beside_a_busy_node_says_that_room_alone_would_bring_little() -> None:
    found = find(node("a100", busy=0.99), node("t4", kv_used_ratio=0.97), waiting=3)
    assert (found.limit, found.subject) == (Limit.KV_CACHE, "t4")
    assert "a100 computes 99% of the time" in found.evidence


def test_a_busy_node_is_what_limits_when_nothing_is_wrong() -> None:
    found = find(node("a100", busy=0.97), node("l4", busy=0.6), node("t4", busy=0.4))
    assert (found.limit, found.subject) == (Limit.COMPUTE, "a100")
    assert "The others do 50% on average" in found.evidence


def test_a_lone_node_has_nobody_to_be_slower_than() -> None:
    found = find(node("t4", busy=0.99, speed=0.2))
    assert (found.limit, found.subject) == (Limit.COMPUTE, "t4")


def test_a_link_that_takes_much_of_requests_time_is_named_where_nodes_are_not_busy() -> None:
    found = find(node("a100"), node("t4"), a100_t4=0.55, coordinator_a100=0.05)
    assert (found.limit, found.subject) == (Limit.LINK, "a100 → t4")
    busy = find(node("a100", busy=0.95), node("t4"), a100_t4=0.55)
    assert busy.limit == Limit.COMPUTE


def test_a_node_that_says_nothing_comes_before_all_else() -> None:
    found = find(node("a100", busy=0.99), node("t4", busy_ratio=None, tokens_per_s=None))
    assert (found.limit, found.subject) == (Limit.SILENT_NODE, "t4")
    several = find(node("a100"), *(node(name, busy_ratio=None) for name in NAMES[1:]))
    assert "l4, t4 are not reporting" in several.headline


@pytest.mark.parametrize("names", [["l4"], ["l4", "t4"]])
def test_nodes_that_say_nothing_are_named_in_the_readers_language(names: list[str]) -> None:
    with translation.override("zh-hans"):
        said = find(node("a100"), *(node(name, busy_ratio=None) for name in names)).headline
    assert re.findall("[A-Za-z][a-z0-9]+", said) == names


def test_without_any_report_nothing_is_claimed() -> None:
    found = find(node("a100", busy_ratio=None))
    assert (found.limit, found.subject) == (Limit.UNKNOWN, "")


def test_requests_that_wait_though_nothing_is_full_are_said_to_wait() -> None:
    assert find(node("a100"), waiting=1).limit == Limit.ADMISSION
    assert "1 request waits" in find(node("a100"), waiting=1).headline


def test_at_a_light_load_nothing_limits() -> None:
    found = find(node("a100", busy=0.2), node("t4", busy=0.1))
    assert found.limit == Limit.NOTHING
    assert "a100, computes 20%" in found.evidence
    assert "Idle" in find(node("a100", busy=0.0, tokens_per_s=0.0), running=0).headline


def link(**changes: Any) -> LinkLoad:
    """A link of 100 Mb/s that does half of that and no longer carries the plan's flow."""
    load = LinkLoad(
        name="a100 → l4",
        measured_bytes_per_s=6.25e6,
        counted_bytes_per_s=12.5e6,
        planned_tokens_per_s=400.0,
        carries_tokens_per_s=300.0,
        queue_s=0.0,
        slow=True,
        stalled=False,
        follows=False,
    )
    return replace(load, **changes)


def find_link(*links: LinkLoad, busy: float = 0.5, **of_nodes: Any) -> Finding:
    nodes = [node(name, busy=busy, **of_nodes) for name in NAMES]
    return bottleneck(Load(nodes=nodes, running=8, waiting=0, transfer_ratios={}, links=links))


def test_a_link_that_no_longer_carries_the_plans_flow_is_named_with_its_price_and_remedy() -> None:
    found = find_link(link(name="l4 → t4", slow=False), link())
    assert (found.limit, found.subject) == (Limit.LINK, "a100 → l4")
    assert "does 50 Mbit/s, the plan counts on 100 Mbit/s" in found.headline
    assert "300 of the 400 tokens/s" in found.evidence
    assert "replan" in found.advice
    assert "routed by what it does" not in found.advice
    assert "routed by what it does" in find_link(link(follows=True)).advice


def test_a_slow_link_is_named_before_full_caches_only_if_it_may_have_filled_them() -> None:
    full = {"kv_used_ratio": 0.97}
    assert find_link(link(), **full).limit is Limit.LINK
    carries_all = link(carries_tokens_per_s=500.0)
    assert find_link(carries_all, **full).limit is Limit.KV_CACHE
    assert find_link(carries_all).subject == "a100 → l4"
    assert "still carries the 400 tokens/s" in find_link(carries_all).evidence


def test_prompts_that_pile_up_at_a_link_are_named_and_short_queues_are_not() -> None:
    as_planned = link(slow=False, measured_bytes_per_s=12.5e6, carries_tokens_per_s=600.0)
    found = find_link(replace(as_planned, queue_s=QUEUED_S + 3))
    assert "pile up at the link a100 → l4" in found.headline
    assert "takes 8 s" in found.evidence
    assert find_link(replace(as_planned, queue_s=QUEUED_S - 1)).limit is Limit.NOTHING


def test_a_link_that_answers_nothing_is_named_before_all_but_silent_nodes() -> None:
    found = find_link(link(stalled=True, measured_bytes_per_s=0.0), busy=0.95)
    assert "takes no prompts" in found.headline
    assert found.subject == "a100 → l4"


def test_of_slow_links_the_one_farthest_below_the_plan_is_named() -> None:
    worse = link(name="l4 → t4", measured_bytes_per_s=1e6)
    assert find_link(link(), worse).subject == "l4 → t4"


pytestmark = pytest.mark.usefixtures("time_stands_still")


@pytest.fixture
def joined(joined: FakeCluster) -> FakeCluster:
    joined.deploy()
    return joined


def serve(
    joined: FakeCluster, *, slow: str = "", full: str = "", steps: int = 7, **report: Any
) -> None:
    """Two heartbeats and reports, two seconds apart; every node computes half of the time.

    Tokens are as many as the plan takes nodes to be capable of; the slow one makes half as many
    and computes all the time.
    """
    flows = plan_from_dict(joined.plan.document).flow.nodes
    for seconds in (100, 102):
        MetricSample.unscoped.update(second=F("second") - 2, at=F("at") - timedelta(seconds=2))
        for name, agent in joined.used_agents.items():
            share, speed = (1.0, 0.5) if name == slow else (0.5, 1.0)
            tokens = share * speed * flows[name].capacity_tokens_per_s * seconds
            stage = STATS.model_copy(
                update={
                    "uptime_s": float(seconds),
                    "busy_s_total": share * seconds,
                    "prompt_tokens_total": 0,
                    "decode_tokens_total": int(tokens),
                    "steps_total": steps,
                    "kv_pages_used": 97 if name == full else 10,
                }
            )
            agent.beat(Phase.READY, generation=1, stage=stage.model_dump(mode="json"))
        joined.coordinator.report(**report)


def test_page_and_rest_name_slow_nodes(
    joined: FakeCluster, browser: Client, api: APIClient
) -> None:
    slow = min(joined.used_agents)
    serve(joined, slow=slow)
    answer = api.get(f"/api/v1/clusters/{joined.cluster.pk}/bottleneck/").json()
    assert (answer["limit"], answer["subject"]) == ("slow node", slow)
    page = browser.get("/monitor/").content.decode()
    assert f"{slow} is slow: it runs at 50% of the speed the plan gives it." in page


def test_what_limits_is_worked_out_once_for_all_who_look_at_a_sample(
    joined: FakeCluster, api: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not any("monitoring_tracedrequest" in sql for sql in statements(lambda: serve(joined)))
    address = f"/api/v1/clusters/{joined.cluster.pk}/bottleneck/"
    asked = []
    for _viewer in range(2):
        sent = statements(lambda: api.get(address))
        # However long the next one waits for a busy machine.
        later_s = time.time() + 60
        monkeypatch.setattr(time, "time", lambda later_s=later_s: later_s)
        asked.append(sum("monitoring_tracedrequest" in sql for sql in sent))
    assert asked == [1, 0]
