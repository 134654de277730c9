"""Which nodes run whole-model instances and which run stages, by what each way should write.

Above `compute_plan`, which knows pipelines only. An instance is a node that holds every layer in a
component of its own, so that the plan's flow is checked like any other's. All ways are compared by
output tokens/s while requests always wait: instances as simulated with continuous batching,
pipelines as their plan's forecast says.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from planner.bounds.best import upper_bound_tokens_per_s
from planner.capacity import ModelDoesNotFit
from planner.checked_plan import checked_plan
from planner.domain.errors import InvalidProblem
from planner.domain.instance import MethodChoice, MethodForecast, PlanMethod
from planner.domain.placement import LayerRange, Placement, together
from planner.domain.plan import Incumbent, Plan
from planner.domain.problem import Problem
from planner.domain.rules import InvalidRules, PlacementRules
from planner.feasibility import restricted_problem
from planner.placers.base import CancelToken, Progress
from planner.placers.instances import NoDegree
from planner.placers.stop import Stop
from planner.placers.whole_machines import PlacedInstances, place_instances
from planner.plan_options import PlanOptions
from planner.planning import NoPlacementFound, compute_plan

PIPELINES: PlanMethod = "pipelines"
INSTANCES: PlanMethod = "instances"
BOTH = "instances and pipelines"
_MOST_NAMED = 5
_CANNOT = (ModelDoesNotFit, NoPlacementFound, InvalidRules, InvalidProblem)


def plan_by_method(
    problem: Problem,
    *,
    options: PlanOptions,
    progress: Progress,
    cancel: CancelToken,
    best_known: Incumbent | None = None,
    start: Placement | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Plan:
    """The plan that `options.method` asks for; arguments are those of `compute_plan`.

    Raises what `compute_plan` raises, and NoDegree where instances are all that was asked for and
    cannot be.
    """
    if options.method == PIPELINES:
        return compute_plan(
            problem,
            options=options,
            progress=progress,
            cancel=cancel,
            best_known=best_known,
            start=start,
            clock=clock,
        )
    stop = Stop(time_limit_s=options.time_limit_s, cancel=cancel, clock=clock)
    run = _Run(problem=problem, options=options, progress=progress, stop=stop)
    restricted = restricted_problem(problem, options.rules)
    try:
        placed = _place(restricted, options)
    except NoDegree as error:
        if options.method == INSTANCES:
            raise
        return _without_instances(run, str(error), start=start)
    only = _checked(
        restricted,
        _joined(None, frozenset(one.node for one in placed.instances), restricted.model.num_layers),
        options,
        placed,
        elapsed_s=run.stop.elapsed_s,
    )
    progress(_incumbent(only, placed.output_tokens_per_s))
    if options.method == INSTANCES:
        forecast = _instances_forecast(placed, options.rules)
        choice = MethodChoice(chosen=INSTANCES, candidates=(forecast,), degrees=placed.ranks)
        return replace(only, method_choice=choice)
    return _best_of_all(run, placed, only, start=start)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One computation."""

    problem: Problem
    options: PlanOptions
    progress: Progress
    stop: Stop

    def progress_from_now(self) -> Progress:
        """Reports the incumbents of a search that begins now, at their seconds of this run.

        What bounds stages does not bound instances.
        """
        begun_s = self.stop.elapsed_s

        def report(incumbent: Incumbent, /) -> None:
            elapsed_s = begun_s + incumbent.elapsed_s
            self.progress(replace(incumbent, elapsed_s=elapsed_s, objective_bound=None))

        return report


def _place(problem: Problem, options: PlanOptions) -> PlacedInstances:
    """Pinned nodes that hold less than all layers are no machines for instances, but for stages."""
    pinned = {
        name
        for name, held in options.rules.pinned.items()
        if len(held) < problem.model.num_layers and problem.cluster.has_node(name)
    }
    if len(pinned) == len(problem.cluster.nodes):
        raise NoDegree(
            "every node is pinned to a part of the model, so that none can run an instance; plan "
            "pipelines instead, or pin fewer"
        )
    left = replace(problem, cluster=problem.cluster.without(pinned)) if pinned else problem
    placed = place_instances(
        left, backend=options.backend, degree=options.tensor_parallel, seed=options.seed
    )
    return replace(placed, smaller=tuple(sorted((*placed.smaller, *pinned))))


def _best_of_all(
    run: _Run, placed: PlacedInstances, only: Plan, *, start: Placement | None
) -> Plan:
    """The best plan of: instances, pipelines over all nodes, and pipelines beside the instances;
    the latter two have half of the time each."""
    options = run.options
    half = replace(options, method=PIPELINES, time_limit_s=options.time_limit_s / 2)
    candidates = [_instances_forecast(placed, options.rules)]
    plans: dict[str, tuple[float, Plan]] = {INSTANCES: (placed.output_tokens_per_s, only)}
    attempts: dict[str, Callable[[], tuple[float, Plan]]] = {
        PIPELINES: lambda: _pipelines(run, half, start=start),
    }
    if placed.smaller:
        attempts[BOTH] = lambda: _beside(run, half, placed, only)
    for method, attempt in attempts.items():
        try:
            plans[method] = attempt()
        except _CANNOT as error:
            candidates.append(
                MethodForecast(method=method, output_tokens_per_s=None, remark=str(error))
            )
        else:
            candidates.append(MethodForecast(method=method, output_tokens_per_s=plans[method][0]))
    chosen = max(plans, key=lambda method: plans[method][0])
    value, plan = plans[chosen]
    plan = replace(plan, elapsed_s=run.stop.elapsed_s)
    run.progress(_incumbent(plan, value))
    candidates.sort(key=lambda one: -(one.output_tokens_per_s or 0.0))
    return replace(
        plan,
        method_choice=MethodChoice(
            chosen=chosen, candidates=tuple(candidates), degrees=placed.ranks
        ),
    )


def _without_instances(run: _Run, reason: str, *, start: Placement | None) -> Plan:
    """Mixed was asked for, and no machine can run an instance."""
    value, plan = _pipelines(run, replace(run.options, method=PIPELINES), start=start)
    return replace(
        plan,
        elapsed_s=run.stop.elapsed_s,
        method_choice=MethodChoice(
            chosen=PIPELINES,
            candidates=(
                MethodForecast(method=PIPELINES, output_tokens_per_s=value),
                MethodForecast(method=INSTANCES, output_tokens_per_s=None, remark=reason),
            ),
            degrees=(),
        ),
    )


def _pipelines(run: _Run, options: PlanOptions, *, start: Placement | None) -> tuple[float, Plan]:
    plan = compute_plan(
        run.problem,
        options=options,
        progress=run.progress_from_now(),
        cancel=run.stop,
        start=start,
        clock=run.stop.clock,
    )
    return _forecast_of(plan), plan


def _beside(
    run: _Run, options: PlanOptions, placed: PlacedInstances, only: Plan
) -> tuple[float, Plan]:
    """Instances where they fit, and pipelines over the nodes that are left."""
    taken = frozenset(only.placement.layers)
    rules = replace(options.rules, excluded_nodes=options.rules.excluded_nodes | taken)
    rules = replace(
        rules, pinned={name: held for name, held in rules.pinned.items() if name not in taken}
    )
    problem, progress = run.problem, run.progress_from_now()
    whole = problem.model.num_layers

    def report(incumbent: Incumbent, /) -> None:
        """Report an incumbent of the pipelines, together with the fixed instances."""
        value = incumbent.objective_value
        if value is not None:
            joined = _joined(incumbent.placement, taken, whole)
            bound = incumbent.upper_bound_tokens_per_s + only.upper_bound_tokens_per_s
            progress(
                replace(
                    incumbent,
                    placement=joined,
                    placer=f"{incumbent.placer} beside instances",
                    flow_tokens_per_s=incumbent.flow_tokens_per_s + only.flow.value_tokens_per_s,
                    upper_bound_tokens_per_s=bound,
                    objective_value=value + placed.output_tokens_per_s,
                )
            )

    rest = compute_plan(
        problem,
        options=replace(options, rules=rules),
        progress=report,
        cancel=run.stop,
        clock=run.stop.clock,
    )
    plan = _checked(
        restricted_problem(problem, options.rules),
        _joined(rest.placement, taken, whole),
        options,
        placed,
        placer=f"{rest.placer} beside instances",
        stop_reason=rest.stop_reason,
        solver=rest.solver,
        elapsed_s=run.stop.elapsed_s,
    )
    return placed.output_tokens_per_s + _forecast_of(rest), plan


def _joined(pipelines: Placement | None, nodes: frozenset[str], num_layers: int) -> Placement:
    """The pipelines, and every one of `nodes` with all layers by itself."""
    whole = LayerRange(first=0, end=num_layers)
    parts = pipelines.parts if pipelines else ()
    return together([*parts, *(Placement(layers={name: whole}) for name in sorted(nodes))])


def _checked(
    problem: Problem,
    placement: Placement,
    options: PlanOptions,
    placed: PlacedInstances,
    *,
    placer: str = "instances",
    stop_reason: str = "heuristic",
    solver: str = "none",
    elapsed_s: float,
) -> Plan:
    plan = checked_plan(
        problem,
        placement,
        partial_inference=options.partial_inference,
        max_hops=options.rules.max_hops,
        upper_bound_tokens_per_s=upper_bound_tokens_per_s(problem),
        placer=placer,
        solver=solver,
        stop_reason=stop_reason,
        elapsed_s=elapsed_s,
    )
    return replace(plan, instances=placed.instances)


def _forecast_of(plan: Plan) -> float:
    """Output tokens/s; 0 of a plan that is not forecast to serve anything."""
    return 0.0 if plan.forecast is None else plan.forecast.value


def _incumbent(plan: Plan, value: float) -> Incumbent:
    return Incumbent(
        elapsed_s=plan.elapsed_s,
        flow_tokens_per_s=plan.flow.value_tokens_per_s,
        upper_bound_tokens_per_s=plan.upper_bound_tokens_per_s,
        placer=plan.placer,
        placement=plan.placement,
        objective_value=value if math.isfinite(value) else None,
    )


def _instances_forecast(placed: PlacedInstances, rules: PlacementRules) -> MethodForecast:
    """The forecast of the instances; its remark names idle nodes."""
    cannot = [name for name in placed.smaller if name not in rules.pinned]
    may_not = [name for name in placed.smaller if name in rules.pinned]
    return MethodForecast(
        method=INSTANCES,
        output_tokens_per_s=placed.output_tokens_per_s,
        remark="; ".join(
            f"left idle, as they {why}: {_named(names)}"
            for why, names in (
                ("cannot hold the model", cannot),
                ("are pinned to a part of the model", may_not),
            )
            if names
        ),
    )


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_NAMED]) + ("…" if len(names) > _MOST_NAMED else "")
