"""Emulated nodes in virtual time: what clients see, against times that are known."""

import itertools
import tomllib

import pytest

from benchmarks.emulated.compare import PARAMETERS
from benchmarks.emulated.drive import Arriving, Clients, Saturated
from benchmarks.emulated.policies import Case, Row, forecast_of, load_of, setup_of
from benchmarks.emulated.virtual_cluster import Agenda, ClusterSetup, VirtualCluster
from planner.checked_plan import checked_plan
from planner.domain.cluster import Cluster, Link, Node
from planner.domain.layer_times import BatchLimits, LayerTimes
from planner.domain.model_spec import ModelSpec
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Problem, Workload
from planner.domain.profile import ComputeProfile
from planner.workload.request import Lengths, Request
from runtime.protocol.engine_options import EngineOptions

LAYERS = 4
CHAIN = Placement(layers={"a": LayerRange(first=0, end=2), "b": LayerRange(first=2, end=4)})
CHAIN_WEIGHTS = {"source": {"a": 1.0}, "a": {"b": 1.0}, "b": {"sink": 1.0}}


def problem(*, kv_token_layers: float = 20_000.0) -> Problem:
    """Two nodes; a layer takes 0.1 s for 100 prompt tokens, 6 ms for up to 2 decodes."""
    profile = ComputeProfile(
        name="kind",
        gpu="test",
        vram_bytes=1e9,
        max_layers=LAYERS,
        tokens_per_s=(400.0, 200.0, 130.0, 100.0),
        kv_capacity_token_layers=(kv_token_layers,) * LAYERS,
        layer_times=LayerTimes(prompt=((100.0, 0.1),), decode=((2.0, 0.006), (10.0, 0.01))),
        batch_limits=BatchLimits(prompt_max_requests=(1,) * 4, decode_max_tokens=(9, 7, 5, 3)),
    )
    return Problem(
        name="two",
        model=ModelSpec(
            name="model",
            num_layers=LAYERS,
            activation_bytes_per_token=1000.0,
            token_bytes=2.0,
            bytes_per_layer=1e6,
        ),
        workload=Workload(mean_prompt_tokens=60, mean_output_tokens=12),
        compute_profiles={"kind": profile},
        cluster=Cluster(
            name="two",
            coordinator_region="here",
            nodes=(
                Node(name="a", region="here", compute_profile="kind"),
                Node(name="b", region="here", compute_profile="kind"),
            ),
            region_links=(
                Link(source="here", target="here", bandwidth_bytes_per_s=1e6, latency_s=0.001),
            ),
        ),
    )


def cluster(**changes: float) -> VirtualCluster:
    return VirtualCluster(
        ClusterSetup(
            problem=problem(**changes),
            placement=CHAIN,
            partial_inference=False,
            routing_weights=CHAIN_WEIGHTS,
            router="iwrr",
            options=dict.fromkeys(CHAIN.layers, EngineOptions(prefill_tokens=250)),
            transmission="decode_first",
            host_copy_s_per_byte=0.0,
            kv_high_water=0.85,
            page_tokens=16,
            max_batch_tokens=512,
            max_context_tokens=4096,
            seed=1,
        )
    )


def test_the_agenda_keeps_its_order_and_does_what_is_put_on_it_meanwhile() -> None:
    agenda, seen = Agenda(), []
    agenda.at(2.0, lambda: seen.append("second"))
    agenda.at(1.0, lambda: agenda.at(2.0, lambda: seen.append("third")))
    agenda.at(1.0, lambda: seen.append("first"))
    agenda.run(until_s=1.5)
    assert (seen, agenda.now_s) == (["first"], 1.5)
    agenda.run(until_s=9.0)
    assert seen == ["first", "second", "third"]


def test_a_lone_request_takes_what_its_steps_and_links_take() -> None:
    lone = Request(arrival_s=0.5, lengths=Lengths(prompt_tokens=100, output_tokens=3))
    never = Request(arrival_s=1e9, lengths=lone.lengths)
    clients = Clients(cluster(), Arriving(iter([lone, never])))
    figures = clients.run(warm_up_s=0.0, window_s=10.0)
    to_a, to_b, home = 200 / 1e6 + 0.001, 100_000 / 1e6 + 0.001, 2 / 1e6 + 0.001
    assert figures.ttft.p50_s == pytest.approx(to_a + 0.2 + to_b + 0.2 + home)
    a_round = home + 0.012 + 1000 / 1e6 + 0.001 + 0.012
    assert figures.itl.p50_s == figures.itl.p95_s == pytest.approx(a_round)
    assert figures.tpot.p50_s == pytest.approx(a_round)
    assert (figures.output_tokens_per_s, figures.requests_finished) == (0.3, 1)


def test_answers_end_where_the_workload_says_and_the_coordinator_learns_it_then() -> None:
    served = cluster()
    clients = Clients(served, Arriving(iter(requests(6, output_tokens=7))))
    assert clients.run(warm_up_s=0.0, window_s=20.0).requests_finished == 6
    assert served.stats.output_tokens_total == 6 * 7
    assert served.serving.output_length.predict(max_tokens=1000) < 12  # what it began with
    served.check_pages()
    assert all(stage.stats().kv_pages_used == 0 for stage in served.stages.values())


def requests(count: int, *, output_tokens: int) -> list[Request]:
    lengths = Lengths(prompt_tokens=50, output_tokens=output_tokens)
    made = [Request(arrival_s=0.1 * number, lengths=lengths) for number in range(count)]
    return [*made, Request(arrival_s=1e9, lengths=lengths)]


def test_a_saturated_cluster_is_kept_full_with_few_prompts_under_way() -> None:
    full = cluster(kv_token_layers=2000.0)
    lengths = itertools.repeat(Lengths(prompt_tokens=60, output_tokens=12))
    clients = Clients(full, Saturated(lengths, prompts_in_flight=3))
    figures = clients.run(warm_up_s=5.0, window_s=10.0)
    # 0.85 * 2000 token-layers are room for 10 requests of 80 tokens in 2 layers; one more waits
    assert full.dispatcher.requests_running <= 10
    assert clients.prompts <= 3
    assert figures.requests_failed == 0
    assert figures.requests_running > 3


def case() -> Case:
    two = problem()
    plan = checked_plan(
        two,
        CHAIN,
        partial_inference=False,
        max_hops=None,
        upper_bound_tokens_per_s=1e6,
        placer="test",
        solver="none",
        stop_reason="given",
        elapsed_s=0.0,
    )
    return Case(problem=two, published=CHAIN, plan=plan)


@pytest.mark.parametrize("policy", ["papers", "ours"])
@pytest.mark.parametrize("rate_per_s", [None, 1.0])
def test_the_simulator_foresees_what_the_emulated_nodes_do(
    policy: str, rate_per_s: float | None
) -> None:
    parameters = tomllib.loads(PARAMETERS.read_text(encoding="utf-8"))
    row = Row(
        label="row",
        policy=policy,
        rate_per_s=rate_per_s,
        decode_cap=None,
        warm_up_s=5.0,
        window_s=25.0,
    )
    served = VirtualCluster(setup_of(case(), row, parameters))
    clients = Clients(served, load_of(case(), row, parameters))
    figures = clients.run(warm_up_s=row.warm_up_s, window_s=row.window_s)
    forecast = forecast_of(case(), row, parameters)
    assert forecast.decode_tokens_per_s == pytest.approx(figures.output_tokens_per_s, rel=0.1)
    assert forecast.ttft.p50_s == pytest.approx(figures.ttft.p50_s, rel=0.2)
    assert forecast.itl.p50_s == pytest.approx(figures.itl.p50_s, rel=0.2)


def test_the_papers_policy_keeps_to_the_published_batch_limits_of_each_node() -> None:
    parameters = tomllib.loads(PARAMETERS.read_text(encoding="utf-8"))
    row = Row(
        label="row",
        policy="papers",
        rate_per_s=None,
        decode_cap=None,
        warm_up_s=1.0,
        window_s=1.0,
    )
    options = setup_of(case(), row, parameters).options["a"]
    assert (options.max_prompts, options.decode_cap) == (1, 7)
    assert options.messages == "per_request"
