"""Figures 11 and 12: what pruning and initial values do to the search for a placement."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.helix.progress_curve import ProgressCurve, read_trace, searched
from benchmarks.helix.row import AS_PUBLISHED, DECODE, Row
from benchmarks.helix.study import Study
from planner.bounds.best import upper_bound_tokens_per_s
from planner.domain.problem import Problem
from planner.domain.rules import PlacementRules
from planner.max_flow import max_flow
from planner.placers.milp_model import build_placement_model
from planner.placers.pruning import node_links, prune_links

WITH, WITHOUT = "with pruning", "without pruning"
FLOW = "max flow tokens/s"
TRACE_QUANTITIES = ("best flow tokens/s", "seconds to the best flow", "proven bound tokens/s")
_PLACEMENTS = {WITH: "helix", WITHOUT: "helix, no pruning"}


def pruning_rows(study: Study) -> Iterator[Row]:
    """Figure 11a and table 8: the flow, throughput and model size with pruning and without.

    Flow and throughput are those of the published placements, model sizes those of our model.
    """
    own = study.parameters["pruning_study"]
    published = own["problems"].get(study.instance.name)
    if published is None:
        return
    problem = study.instance.problem
    sizes = {
        WITH: model_size(problem, average_degree=own["average_degree"]),
        WITHOUT: model_size(problem, average_degree=None),
    }
    flows = {
        name: max_flow(problem, study.instance.placements[placement], partial_inference=False)
        for name, placement in _PLACEMENTS.items()
    }
    for name, flow in flows.items():
        yield _row(own["figure"], study, FLOW, name, flow.value_tokens_per_s, None)
    for name, placement in _PLACEMENTS.items():
        method = study.helix(placement, name=name)
        yield study.row(
            own["figure"],
            AS_PUBLISHED,
            DECODE,
            name,
            study.as_published(method),
            published[name][0],
        )
    for index, quantity in enumerate(("variables", "constraints")):
        for name, size in sizes.items():
            yield _row(
                own["figure"], study, quantity, name, size[index], published[name][1 + index]
            )


def model_size(problem: Problem, *, average_degree: float | None) -> tuple[int, int]:
    """(variables, constraints) of our MILP with partial inference."""
    links = node_links(problem)
    if average_degree is not None:
        links = prune_links(problem, links, average_degree=average_degree, keep=(), seed=0)
    model = build_placement_model(
        problem,
        node_links=links,
        partial_inference=True,
        upper_bound_tokens_per_s=upper_bound_tokens_per_s(problem),
        rules=PlacementRules(),
    ).model
    return model.num_variables, model.num_rows


def search_curves(study: Study, traces: Path, *, time_limit_s: float) -> list[ProgressCurve]:
    """The published traces of the instance, and a run of ours for each."""
    own = study.parameters["pruning_study"]
    curves = []
    for name, trace in own["traces"].get(study.instance.name, {}).items():
        curves.append(read_trace(traces / f"{trace}.csv", problem=study.instance.name, name=name))
        curves.append(
            searched(
                study.instance.problem,
                name=name,
                prune_degree=None if name.startswith("not pruned") else own["average_degree"],
                with_start=name.endswith("warm start"),
                time_limit_s=time_limit_s,
                seed=study.seeds[0],
            )
        )
    return curves


def search_rows(figure: int, problem: str, curves: Sequence[ProgressCurve]) -> Iterator[Row]:
    """Figure 11b: best flow, when, and the bound; a published trace is what ours is held to."""
    published = {curve.name: curve for curve in curves if curve.source != "our run"}
    for index, quantity in enumerate(TRACE_QUANTITIES):
        for curve in curves:
            if curve.source == "our run":
                yield Row(
                    figure=figure,
                    problem=problem,
                    reading=AS_PUBLISHED,
                    quantity=quantity,
                    method=curve.name,
                    values=(_summary(curve)[index],),
                    published=_summary(published[curve.name])[index],
                )


def quality_lines(curve: ProgressCurve) -> Iterator[str]:
    """Figure 12, of a cluster whose problem is not at hand: what the trace shows."""
    proven = curve.proven_at_s
    yield f"\nFigure 12, {curve.problem}, {curve.source}: incumbent and bound over time"
    yield (
        f"  the best flow {curve.best_tokens_per_s:.1f} was known after {curve.best_at_s:.0f} s, "
        + ("never proven" if proven is None else f"proven within 3 % after {proven:.0f} s")
    )


def _summary(curve: ProgressCurve) -> tuple[float, float, float]:
    return curve.best_tokens_per_s, curve.best_at_s, curve.bound_tokens_per_s


def _row(
    figure: int, study: Study, quantity: str, name: str, value: float, published: float | None
) -> Row:
    return Row(
        figure=figure,
        problem=study.instance.name,
        reading=AS_PUBLISHED,
        quantity=quantity,
        method=name,
        values=(float(value),),
        published=published,
    )
