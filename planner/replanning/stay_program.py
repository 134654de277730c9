"""The integer program over stages at their places: the fewest layers to load for a given flow.

maximise sum over columns of (w * layers of the column - its layers to load) * y
subject to   sum of columns over a layer <= 1            for every layer,
             sum of nodes of a group * y <= nodes        for every group,
             sum of y <= most stages                     where hops are limited,  y in {0, 1};

w, in moved layers, is so large that all layers are held if they can be. Its linear program is
nearly integral on the published clusters: some thousand columns, and branching for a second.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from planner.bounds.packing_program import PackingProgram
from planner.domain.placement import LayerRange, Placement
from planner.placers.solvers.base import LastSolution, SolveLimits, packing_model
from planner.placers.solvers.choice import solve
from planner.placers.stop import ProgramLimits
from planner.replanning.stay_groups import StayColumn, with_another_node
from planner.replanning.stay_patterns import StayPatterns
from planner.replanning.stay_prices import Floats, Prices
from planner.tuning.replanning import StayProgramTuning as tuned


@dataclass(frozen=True, slots=True, kw_only=True)
class StaySolution:
    """Chosen stages as a placement; `layers_held` fewer than the model's where not all could be."""

    placement: Placement
    layers_held: int
    layers_to_load: int


class StayProgram:
    """One target flow; made and solved once."""

    def __init__(
        self,
        patterns: StayPatterns,
        *,
        max_stages: int | None,
        known: Sequence[StayColumn] = (),
    ) -> None:
        """`known` columns, of another target and the same groups, save finding them again."""
        self._patterns = patterns
        self._num_layers = patterns.num_layers
        self._value_of_layer = float(2 * patterns.num_layers)
        self._limits = [1.0] * self._num_layers
        self._limits += [float(len(group.names)) for group in patterns.groups]
        self._stage_row: int | None = None
        if max_stages is not None:
            self._stage_row = len(self._limits)
            self._limits.append(float(max_stages))
        self._columns: list[StayColumn] = []
        self._program = PackingProgram(self._limits)
        self._known: set[StayColumn] = set()
        for column in known:
            if column.tokens_per_s >= patterns.target_tokens_per_s:
                self._add(column)

    @property
    def columns(self) -> Sequence[StayColumn]:
        """All found or known columns that carry the target."""
        return self._columns

    def solve(self, limits: ProgramLimits) -> StaySolution | None:
        """The best choice found; None if no stage carries the flow, or there was no time."""
        prices = self._generate(limits.stop.is_over)
        if prices is None:
            return None
        self._add_exchanges(prices)
        answer = None
        for spare in tuned.SPARE_LAYERS:
            columns = [column for column in self._columns if self._gain(column, prices) > -spare]
            chosen = self._choose(columns, limits) if columns else None
            answer = None if chosen is None else self._solution(chosen)
            if answer is not None and answer.layers_held == self._num_layers:
                break
        return answer

    def _generate(self, should_stop: Callable[[], bool]) -> Prices | None:
        """Columns for the linear program's optimum, and its prices; nested ones come last."""
        for _ in range(tuned.MOST_ROUNDS):
            prices = self._prices(self._program.solve().row_prices)
            if should_stop():
                return None
            priced = self._patterns.priced(prices)
            fresh = self._added(self._patterns.cheapest_stages(prices, priced))
            if fresh < tuned.FEW_FRESH:
                # Those without nesting are found far sooner; so they go first.
                fresh += self._added(self._patterns.cheapest_nested(prices, priced))
            if fresh == 0 or len(self._columns) >= tuned.MOST_COLUMNS:
                return prices
        return self._prices(self._program.solve().row_prices)

    def _add_exchanges(self, prices: Prices) -> None:
        """Columns that differ from those of the linear program's optimum in one node.

        Pricing finds one of several that cost nearly the same. Without the others the choice of
        whole columns is up to a layer worse (het42 without an A100: 28 layers instead of 27).
        """
        amounts = self._program.solve().amounts.tolist()
        chosen = [one for one, amount in zip(self._columns, amounts, strict=True) if amount > 0]
        self._added(
            exchanged
            for column in chosen
            for exchanged in with_another_node(column, self._patterns.groups)
            if self._gain(exchanged, prices) > -tuned.SPARE_LAYERS[0]
        )

    def _added(self, columns: Iterable[StayColumn]) -> int:
        """Add columns; returns how many are new."""
        fresh = [column for column in dict.fromkeys(columns) if column not in self._known]
        for column in fresh:
            self._add(column)
        return len(fresh)

    def _add(self, column: StayColumn) -> None:
        self._known.add(column)
        self._columns.append(column)
        self._program.add_column(self._use_of_rows(column), value=self._value(column))

    def _prices(self, of_rows: Floats) -> Prices:
        groups_end = self._num_layers + len(self._patterns.groups)
        return Prices(
            value_of_layer=self._value_of_layer,
            of_layer=of_rows[: self._num_layers],
            of_group=of_rows[self._num_layers : groups_end],
            of_stage=0.0 if self._stage_row is None else float(of_rows[self._stage_row]),
        )

    def _choose(
        self, columns: Sequence[StayColumn], limits: ProgramLimits
    ) -> list[StayColumn] | None:
        model = packing_model(
            self._limits, [(1, self._value(one), self._use_of_rows(one)) for one in columns]
        )
        watcher = LastSolution(limits.stop.is_over)
        solve(
            limits.solver,
            model,
            limits=SolveLimits(
                time_limit_s=math.inf,
                relative_gap=tuned.GAP_LAYERS / (self._value_of_layer * self._num_layers),
                seed=limits.seed,
                node_limit=tuned.NODES,
            ),
            watcher=watcher,
        )
        if watcher.values is None:
            return None
        return [column for column, y in zip(columns, watcher.values, strict=True) if round(y) == 1]

    def _solution(self, chosen: Sequence[StayColumn]) -> StaySolution:
        waiting = [list(group.names) for group in self._patterns.groups]
        layers: dict[str, LayerRange] = {}
        for column in chosen:
            for group, held in column.held:
                layers[waiting[group].pop(0)] = held
        return StaySolution(
            placement=Placement(layers=layers),
            layers_held=sum(len(column.range) for column in chosen),
            layers_to_load=sum(column.layers_to_load for column in chosen),
        )

    def _gain(self, column: StayColumn, prices: Prices) -> float:
        held = column.range
        price = float(prices.of_layer[held.first : held.end].sum()) + prices.of_stage
        price += sum(
            float(prices.of_group[group]) * count for group, count in column.nodes_of_group.items()
        )
        return self._value(column) - price

    def _value(self, column: StayColumn) -> float:
        return self._value_of_layer * len(column.range) - column.layers_to_load

    def _use_of_rows(self, column: StayColumn) -> dict[int, float]:
        use = {layer: 1.0 for layer in range(column.range.first, column.range.end)}
        for group, count in column.nodes_of_group.items():
            use[self._num_layers + group] = float(count)
        if self._stage_row is not None:
            use[self._stage_row] = 1.0
        return use
