"""Figures 6 to 10: methods, placements and routers compared, in both readings."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple, dataclass, replace
from typing import Any

from benchmarks.helix.artifact_routers import ArtifactRouter
from benchmarks.helix.instance import Instance
from benchmarks.helix.method import (
    Method,
    alone,
    by_router,
    helix,
    ours,
    separate,
    under_runtime_policy,
)
from benchmarks.helix.reading import Readings, lifetime_of
from benchmarks.helix.row import AS_PUBLISHED, DECODE, EQUAL_TERMS, Row
from planner.domain.plan import Plan
from planner.domain.serving_policy import PUBLISHED_POLICY, RUNTIME_POLICY
from planner.routers.choice import RouterName
from planner.simulator.forecast import Forecast
from planner.workload.lengths import MEAN_OUTPUT_TOKENS, MEAN_PROMPT_TOKENS

SEPARATE, SEPARATE_PLUS = "separate pipelines", "separate pipelines +"
OURS_PUBLISHED = "our plan, balanced, published policy"
OURS_RUNTIME = "our plan, our runtime's policy"
IN_OUR_RUNTIME = " in our runtime"
ONLINE_QUANTITIES = (
    "online decode tokens/s",
    "online prompt latency p50 s",
    "online prompt latency p95 s",
    "online decode latency p50 s",
    "online decode latency p95 s",
)
_TOKENS_PER_DECODE = (MEAN_PROMPT_TOKENS + MEAN_OUTPUT_TOKENS) / MEAN_OUTPUT_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What all figures share. `plans` are of one instance, by the policy they were made for.

    `router_seeds` are figure 10's: its routers differ by less than few seeds can tell.
    """

    instance: Instance
    readings: Readings
    plans: Mapping[str, Plan]
    seeds: tuple[int, ...]
    router_seeds: tuple[int, ...]

    @property
    def parameters(self) -> Mapping[str, Any]:
        return self.readings.parameters

    def helix(self, placement: str, *, name: str) -> Method:
        card = self.parameters["card_bytes_per_s"]
        return helix(self.instance, placement, name=name, card_bytes_per_s=card)

    def swarm(self) -> Method:
        requests = self.instance.figures["swarm_requests"]
        return by_router(self.instance, "swarm", name="swarm", router="swarm", requests=requests)

    def separate(self, name: str, *, by_online_share: bool) -> Method:
        pipelines = self.instance.separate
        if name == SEPARATE_PLUS:
            pipelines += self.instance.separate_plus
        return separate(self.instance, pipelines, name=name, by_online_share=by_online_share)

    def ours(self) -> tuple[Method, Method]:
        """Our plan in the published system's place, and our plan in our runtime."""
        return (
            self._ours("published", name=OURS_PUBLISHED),
            self._ours("runtime", name=OURS_RUNTIME),
        )

    def _ours(self, policy: str, *, name: str) -> Method:
        plan = self.plans[policy]
        return ours(
            self.instance,
            plan.placement,
            name=name,
            policy=PUBLISHED_POLICY if policy == "published" else RUNTIME_POLICY,
            partial=plan.partial_inference,
        )

    def as_published(self, *methods: Method) -> Callable[[int], float]:
        """Offline decode tokens/s of a seed: the sum of methods that serve apart."""
        return lambda seed: sum(
            self.readings.offline_as_published(method, seed=seed) for method in methods
        )

    def row(
        self,
        figure: int,
        reading: str,
        quantity: str,
        method: str,
        of_seed: Callable[[int], float],
        published: float | None = None,
    ) -> Row:
        return Row(
            figure=figure,
            problem=self.instance.name,
            reading=reading,
            quantity=quantity,
            method=method,
            values=tuple(of_seed(seed) for seed in self.seeds),
            published=published,
        )


def offline_as_published(study: Study) -> Iterator[Row]:
    """Figures 6 to 8, decode throughput."""
    figures = study.instance.figures

    def row(method: str, of_seed: Callable[[int], float]) -> Row:
        published = figures["methods"].get(method, {}).get("offline")
        return study.row(figures["figure"], AS_PUBLISHED, DECODE, method, of_seed, published)

    for method in (study.helix("helix", name="helix"), study.swarm()):
        yield row(method.name, study.as_published(method))
    pipelines = [alone(study.instance, each) for each in study.instance.separate]
    plus = [alone(study.instance, each) for each in study.instance.separate_plus]
    for name, parts in ((SEPARATE, pipelines), (SEPARATE_PLUS, pipelines + plus)):
        if name in figures["methods"]:
            yield row(name, study.as_published(*parts))
    for method in study.ours():
        yield row(method.name, study.as_published(method))


def online_as_published(study: Study) -> Iterator[Row]:
    """Figures 6 to 8, online: each method at the load that the artifact offers it.

    Ours are offered the share of their own backlog throughput that the paper names.
    """
    figures = study.instance.figures
    methods = [study.helix("helix", name="helix"), study.swarm()]
    methods += [
        study.separate(name, by_online_share=True)
        for name in (SEPARATE, SEPARATE_PLUS)
        if name in figures["methods"]
    ]
    offered = {name: own["offered_tokens_per_s"] for name, own in figures["methods"].items()}
    published = {name: tuple(own["online"]) for name, own in figures["methods"].items()}
    share = study.parameters["equal"]["share_of_peak"]
    for method in study.ours():
        peak = study.readings.offline_as_published(method, seed=study.seeds[0])
        offered[method.name] = share * peak * _TOKENS_PER_DECODE
        methods.append(method)
    found = {
        method.name: [
            astuple(
                study.readings.online_as_published(
                    method, offered_tokens_per_s=offered[method.name], seed=seed
                )
            )
            for seed in study.seeds
        ]
        for method in methods
    }
    yield from _online_rows(study, AS_PUBLISHED, found, published)


def _online_rows(
    study: Study,
    reading: str,
    found: Mapping[str, list[tuple[float, ...]]],
    published: Mapping[str, tuple[float, ...]],
) -> Iterator[Row]:
    for index, quantity in enumerate(ONLINE_QUANTITIES):
        for name, runs in found.items():
            yield Row(
                figure=study.instance.figures["figure"],
                problem=study.instance.name,
                reading=reading,
                quantity=quantity,
                method=name,
                values=tuple(run[index] for run in runs),
                published=published[name][index] if name in published else None,
            )


def equal_methods(study: Study, *, in_our_runtime: bool) -> list[Method]:
    """Every method of figures 6 to 8 under the published policy, then, if asked for, in ours."""
    methods = [study.helix("helix", name="helix"), study.swarm()]
    methods += [
        study.separate(name, by_online_share=False)
        for name in (SEPARATE, SEPARATE_PLUS)
        if name in study.instance.figures["methods"]
    ]
    published, runtime = study.ours()
    if in_our_runtime:
        in_runtime = [under_runtime_policy(method, study.instance) for method in methods]
        return [*methods, published, *in_runtime, runtime]
    return [*methods, published, runtime]


def equal_name(method: Method) -> str:
    in_runtime = method.policy == RUNTIME_POLICY and method.name != OURS_RUNTIME
    return method.name + IN_OUR_RUNTIME * in_runtime


def on_equal_terms(study: Study, *, in_brief: bool) -> Iterator[Row]:
    """Figures 6 to 8 again: the same KV rule, steady windows, and one online load for all.

    The load is the paper's share of what the published system sustains. In brief it is offline
    only, and baselines run under the published policy only.
    """
    figure = study.instance.figures["figure"]
    methods = equal_methods(study, in_our_runtime=not in_brief)
    forecasts: dict[str, list[Forecast]] = {
        equal_name(method): [
            study.readings.offline_on_equal_terms(method, seed=seed) for seed in study.seeds
        ]
        for method in methods
    }
    for name, runs in forecasts.items():
        yield Row(
            figure=figure,
            problem=study.instance.name,
            reading=EQUAL_TERMS,
            quantity=DECODE,
            method=name,
            values=tuple(run.decode_tokens_per_s for run in runs),
        )
    if in_brief:
        return
    peak = forecasts["helix"][0]
    offered = study.parameters["equal"]["share_of_peak"] * peak.decode_tokens_per_s
    lifetime_s = lifetime_of(peak)
    found = {
        equal_name(method): [
            astuple(
                study.readings.online_on_equal_terms(
                    method,
                    offered_tokens_per_s=offered * _TOKENS_PER_DECODE,
                    lifetime_s=lifetime_s,
                    seed=seed,
                )
            )
            for seed in study.seeds
        ]
        for method in methods
    }
    yield from _online_rows(study, EQUAL_TERMS, found, {})


def placement_rows(study: Study) -> Iterator[Row]:
    """Figure 9: the placements under the published router, in both readings; ours beside them."""
    own = study.parameters["placement_study"]
    methods = [study.helix(name, name=name) for name in own["decode_tokens_per_s"]]
    methods += study.ours()
    for method in methods:
        yield study.row(
            own["figure"],
            AS_PUBLISHED,
            DECODE,
            method.name,
            study.as_published(method),
            own["decode_tokens_per_s"].get(method.name),
        )
    for method in methods:
        yield study.row(own["figure"], EQUAL_TERMS, DECODE, method.name, _sustained(study, method))


def router_rows(study: Study) -> Iterator[Row]:
    """Figure 10: the routers on the published placement.

    As published Helix' router is limited by KV room and the others, the artifact's, by a
    concurrency set by hand; on equal terms all have one concurrency and are the product's. The
    others take any of the hops that the artifact's cluster file for this study has.
    """
    study = replace(study, seeds=study.router_seeds)
    own = study.parameters["router_study"]
    methods = [study.helix(own["placement"], name="published")]
    hops = {source: dict.fromkeys(targets, 0.0) for source, targets in own["hops"].items()}
    routers: tuple[RouterName, ...] = ("swarm", "random", "shortest_queue")
    for name in routers:
        method = by_router(
            study.instance, own["placement"], name=name, router=name, requests=own["requests"]
        )
        methods.append(replace(method, weights=hops))
    artifact: dict[str, ArtifactRouter] = {
        "swarm": "swarm",
        "random": "random",
        "shortest_queue": "shortest_queue",
    }
    plan = study.instance.placements[own["placement"]]
    balanced = ours(
        study.instance,
        plan,
        name="iwrr on balanced weights",
        policy=PUBLISHED_POLICY,
        partial=False,
    )
    methods.append(balanced)
    for method in methods:
        yield study.row(
            own["figure"],
            AS_PUBLISHED,
            DECODE,
            method.name,
            study.as_published(replace(method, artifact_router=artifact.get(method.name))),
            own["decode_tokens_per_s"].get(method.name),
        )
    for method in methods:
        yield study.row(
            own["figure"],
            EQUAL_TERMS,
            DECODE,
            method.name,
            _sustained(study, method, requests_in_flight=own["equal_requests"]),
        )


def _sustained(
    study: Study, method: Method, *, requests_in_flight: int | None = None
) -> Callable[[int], float]:
    return lambda seed: (
        study.readings.offline_on_equal_terms(
            method, seed=seed, requests_in_flight=requests_in_flight
        ).decode_tokens_per_s
    )
