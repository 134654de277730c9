"""The use case: (problem, placement, routing, demand, policy) -> Forecast. Read this file first.

The engine runs events until admission must decide; routers, KV estimates and output predictions are
the objects that the coordinator runs. `planner/loops/simulator/` says how links share bandwidth.
KV pages are the nodes' own: they refuse prompts and preempt requests as the runtime's stages do.
Not modelled: the way of a release to the stages, prefixes that prompts share.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import numpy as np

from planner.domain.errors import PlannerError
from planner.domain.limits import POSITIVE, Range, check_fields
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.domain.serving_policy import ServingPolicy
from planner.flow_graph import check_placement
from planner.routers.base import Router
from planner.routers.choice import RouterName, make_router
from planner.routers.kv_estimator import KvEstimator
from planner.routers.node_load import NodeLoad
from planner.routers.output_length import OutputLengthEstimate
from planner.simulator.admission import Admission, FixedLength
from planner.simulator.compiled_engine import Engine
from planner.simulator.engine import EngineSetup
from planner.simulator.feeders import Feeder, feeder_for
from planner.simulator.forecast import Forecast, LinkForecast, NodeForecast, spread_of
from planner.simulator.record import OnRequest
from planner.simulator.translation import (
    Links,
    Numbering,
    check_coverage,
    engine_setup,
    kv_pages,
    numbering_of,
)
from planner.workload.demand import Demand

RoutingWeights: TypeAlias = Mapping[str, Mapping[str, float]]

# Two copies on the way into a step, at 4 and 5 GB/s (the published simulator's overhead).
HOST_COPY_S_PER_BYTE = 1 / 4e9 + 1 / 5e9


class InvalidSimulation(PlannerError, ValueError):
    """Options outside their range, or a run in which nothing happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationOptions:
    """Length of a simulation, and the coordinator's assumptions.

    Figures are those of [warm_up_s, warm_up_s + window_s). KV room is reserved in pages of
    `page_tokens`, which are also those of the nodes, for the prompt and a predicted output: the
    running mean that the coordinator keeps, its reservations growing with the answers, or always
    `fixed_output_tokens`. `seed` is that of routers that choose at random.
    """

    warm_up_s: Annotated[float, Range(0)] = 300.0
    window_s: Annotated[float, POSITIVE] = 600.0
    page_tokens: Annotated[int, Range(1)] = 16
    fixed_output_tokens: Annotated[int, Range(1)] | None = None
    host_copy_s_per_byte: Annotated[float, Range(0)] = HOST_COPY_S_PER_BYTE
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self, error=InvalidSimulation)


def simulate(
    problem: Problem,
    *,
    placement: Placement,
    routing_weights: RoutingWeights,
    demand: Demand,
    policy: ServingPolicy,
    partial_inference: bool,
    router: RouterName = "iwrr",
    options: SimulationOptions | None = None,
    engine_maker: Callable[[EngineSetup], Engine] = Engine,
    router_maker: Callable[..., Router] = make_router,
    feeder_maker: Callable[..., Feeder] = feeder_for,
    on_request: OnRequest | None = None,
) -> Forecast:
    """Serve the demand with this placement and report; the same arguments give the same forecast.

    `router_maker` is called as `make_router` is, `feeder_maker` as `feeder_for`. `on_request` hears
    of every request when it has finished, in the warm-up too. Stops before the window's end when
    the demand is exhausted and served. Raises InvalidPlacement, InvalidWorkload and
    InvalidSimulation.
    """
    options = options or SimulationOptions()
    check_placement(problem, placement)
    check_coverage(problem, placement)
    numbering = numbering_of(placement, partial_inference=partial_inference)
    engine = engine_maker(
        engine_setup(
            problem,
            placement=placement,
            numbering=numbering,
            policy=policy,
            page_tokens=options.page_tokens,
            measures_waits=on_request is not None,
            host_copy_s_per_byte=options.host_copy_s_per_byte,
        )
    )
    capacities = {
        name: options.page_tokens * kv_pages(problem, name, held, page_tokens=options.page_tokens)
        for name, held in placement.layers.items()
    }
    kv = KvEstimator(
        capacity_token_layers=capacities,
        page_tokens=options.page_tokens,
        high_water=policy.kv_high_water,
    )
    links = Links(problem, engine, numbering, return_path=policy.return_path)
    prediction = (
        OutputLengthEstimate(mean_output_tokens=problem.workload.mean_output_tokens)
        if options.fixed_output_tokens is None
        else FixedLength(mean_output_tokens=options.fixed_output_tokens)
    )
    load = NodeLoad(clock=lambda: engine.now)
    chosen_router = router_maker(
        router,
        routing_weights=routing_weights,
        placement=placement,
        num_layers=problem.model.num_layers,
        partial_inference=partial_inference,
        kv=kv,
        load=load,
        rng=random.Random(options.seed),  # noqa: S311 - a simulation, no secret
    )
    admission = Admission(
        engine=engine,
        router=chosen_router,
        kv=kv,
        load=load,
        placement=placement,
        links=links,
        prediction=prediction,
        page_tokens=options.page_tokens if options.fixed_output_tokens is None else None,
        on_request=on_request,
    )
    feeder = feeder_maker(
        demand,
        admission=admission,
        engine=engine,
        router=chosen_router,
        placement=placement,
        kv=kv,
    )

    def run_until(end_s: float) -> bool:
        """Whether anything is left to do then."""
        while True:
            due_s = feeder.due_s()
            occurrence = engine.advance(min(due_s, end_s))
            if occurrence is not None:
                feeder.hear(occurrence, may_let_in=admission.hear(occurrence))
            elif due_s < end_s:
                feeder.offer()
            else:
                return True
            if not admission.running and feeder.idle():
                return False

    if not run_until(options.warm_up_s):
        raise InvalidSimulation(
            f"all requests were served after {engine.now:g} s, within the warm-up of "
            f"{options.warm_up_s:g} s; give more requests or a shorter warm-up"
        )
    engine.reset_statistics()
    admission.reset_tallies()
    run_until(options.warm_up_s + options.window_s)
    return _forecast(engine, admission, links, numbering, capacities)


def _forecast(
    engine: Engine,
    admission: Admission,
    links: Links,
    numbering: Numbering,
    capacities: Mapping[str, int],
) -> Forecast:
    counted = engine.statistics()
    seconds = counted.seconds
    nodes, carried = counted.nodes, counted.links
    batch = nodes.decodes / np.maximum(nodes.decode_steps, 1)
    resident = nodes.resident_integral / seconds
    item_weighted = nodes.decodes_squared / np.maximum(nodes.decodes, 1)
    convoy = nodes.decodes_squared / np.maximum(nodes.decodes_resident, 1)
    capacity_N = np.maximum([capacities[name] for name in numbering.names], 1)  # 0 holds nothing
    utilisation = nodes.busy_s / seconds
    decodes = max(1, int(nodes.decodes.sum()))
    return Forecast(
        decode_tokens_per_s=counted.output_tokens / seconds,
        prompt_tokens_per_s=counted.prompt_tokens / seconds,
        ttft=admission.ttft.spread(),
        itl=spread_of(counted.gaps),
        tpot=admission.tpot.spread(),
        e2e=admission.e2e.spread(),
        queue=admission.queue.spread(),
        requests_finished=counted.finished,
        requests_preempted=counted.preempted,
        requests_failed=admission.failed,
        requests_running=counted.running_integral / seconds,
        utilisation_mean=float(utilisation.mean()),
        utilisation_max=float(utilisation.max()),
        batch_decodes=float((item_weighted * nodes.decodes).sum() / decodes),
        convoy=float((convoy * nodes.decodes).sum() / decodes),
        kv_peak=float((nodes.kv_peak / capacity_N).max()),
        nodes={
            name: NodeForecast(
                utilisation=float(utilisation[number]),
                batch_decodes=float(batch[number]),
                convoy=float(convoy[number]) if nodes.decodes[number] else 0.0,
                resident_requests=float(resident[number]),
                kv_mean=float(nodes.kv_integral[number] / seconds / capacity_N[number]),
                kv_peak=float(nodes.kv_peak[number] / capacity_N[number]),
                queued=float(nodes.waiting_integral[number] / seconds),
                prompt_tokens_per_s=float(nodes.prompt_tokens[number] / seconds),
            )
            for number, name in enumerate(numbering.names)
        },
        links=tuple(
            LinkForecast(
                source=source,
                target=target,
                utilisation=float(carried.busy_s[number] / seconds),
                bytes_per_s=float(carried.bytes[number] / seconds),
                queued=float(carried.waiting_integral[number] / seconds),
                queued_peak=int(carried.waiting_peak[number]),
            )
            for number, (source, target) in enumerate(links.ends)
        ),
        window_s=seconds,
        simulated_s=engine.now,
        events=counted.events,
    )
