"""One figure of a table, and what a table says about the order of methods."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from statistics import fmean, stdev

AS_PUBLISHED = "as published"
EQUAL_TERMS = "equal terms"
DECODE = "offline decode tokens/s"
# Published figures this close together have no order: 124.7 against 124.3, say.
_TIE = 0.01
# Student's t: 95 % of means of n + 2 values lie within so many standard errors. Beyond, the last.
_WITHIN = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`values` are ours, one for each seed; `published` is None where nothing was."""

    figure: int
    problem: str
    reading: str
    quantity: str
    method: str
    values: tuple[float, ...]
    published: float | None = None

    @property
    def mean(self) -> float:
        return fmean(self.values)

    @property
    def spread(self) -> float:
        """Largest less smallest of the seeds."""
        return max(self.values) - min(self.values)

    @property
    def ratio(self) -> float | None:
        """Ours over published."""
        return None if not self.published else self.mean / self.published

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self), "mean": self.mean, "spread": self.spread, "ratio": self.ratio}


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecided:
    """Two methods whose order the seeds do not tell: the one of the larger mean first.

    `difference` of the means lies within `error`, its 95 % interval by the seeds' differences.
    """

    methods: tuple[str, str]
    difference: float
    error: float
    seeds: int

    def __str__(self) -> str:
        return (
            f"{self.methods[0]} and {self.methods[1]} (difference {self.difference:.1f}, "
            f"within {self.error:.1f} by {self.seeds} seeds)"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Methods by a quantity, best first, as published and by our means.

    `ties` are pairs whose published figures are too close for an order, `undecided` those which
    our seeds do not tell apart.
    """

    figure: int
    problem: str
    reading: str
    quantity: str
    published: tuple[str, ...]
    ours: tuple[str, ...]
    ties: frozenset[tuple[str, str]] = frozenset()
    undecided: tuple[Undecided, ...] = ()

    @property
    def inverted(self) -> tuple[tuple[str, str], ...]:
        """Pairs whose published order ours turns round, the published better first.

        Not those that are undecided.
        """
        position = {method: index for index, method in enumerate(self.ours)}
        undecided = {each.methods for each in self.undecided}
        return tuple(
            (better, worse)
            for better, worse in combinations(self.published, 2)
            if (better, worse) not in self.ties
            and (worse, better) not in undecided
            and position[better] > position[worse]
        )

    def as_dict(self) -> dict[str, object]:
        return {
            **asdict(self),
            "ties": sorted(self.ties),
            "inverted": self.inverted,
        }


def orders_of(rows: Iterable[Row]) -> Iterator[Order]:
    """The order of every group of two or more offline rows with published figures.

    On equal terms the published figures are those of the same methods as published.
    """
    groups: dict[tuple[int, str, str], list[Row]] = {}
    for row in rows:
        if row.quantity == DECODE:
            groups.setdefault((row.figure, row.problem, row.reading), []).append(row)
    for (figure, problem, reading), group in groups.items():
        published = _figures(groups.get((figure, problem, AS_PUBLISHED), ()))
        compared = [row for row in group if row.method in published]
        if len(compared) > 1:
            names = sorted(
                (row.method for row in compared), key=published.__getitem__, reverse=True
            )
            compared.sort(key=lambda row: row.mean, reverse=True)
            yield Order(
                figure=figure,
                problem=problem,
                reading=reading,
                quantity=DECODE,
                published=tuple(names),
                ties=frozenset(
                    (better, worse)
                    for better, worse in combinations(names, 2)
                    if published[worse] >= (1 - _TIE) * published[better]
                ),
                undecided=tuple(_undecided(compared)),
                ours=tuple(row.method for row in compared),
            )


def _undecided(rows: Sequence[Row]) -> Iterator[Undecided]:
    """Pairs of rows, best first, that their seeds do not tell apart; a single seed tells nothing.

    Both have the same seeds, so it is the differences seed by seed that count.
    """
    for one, other in combinations(rows, 2):
        differences = [ours - theirs for ours, theirs in zip(one.values, other.values, strict=True)]
        count = len(differences)
        if count > 1:
            within = _WITHIN[min(count - 2, len(_WITHIN) - 1)]
            error = within * stdev(differences) / count**0.5
            if fmean(differences) <= error:
                yield Undecided(
                    methods=(one.method, other.method),
                    difference=fmean(differences),
                    error=error,
                    seeds=count,
                )


def _figures(rows: Sequence[Row]) -> dict[str, float]:
    return {row.method: row.published for row in rows if row.published is not None}


def table_of(rows: Sequence[Row]) -> Iterator[str]:
    """Lines of text: a block for each figure, problem, reading and quantity."""
    heading: tuple[int, str, str, str] | None = None
    for row in rows:
        own = (row.figure, row.problem, row.reading, row.quantity)
        if own != heading:
            heading = own
            yield f"\nFigure {row.figure}, {row.problem}, {row.reading}: {row.quantity}"
            yield f"  {'method':<40}{'published':>10}{'ours':>10}{'ratio':>8}{'spread':>9}"
        published = "-" if row.published is None else f"{row.published:.2f}"
        ratio = "-" if row.ratio is None else f"{row.ratio:.2f}"
        yield f"  {row.method:<40}{published:>10}{row.mean:>10.2f}{ratio:>8}{row.spread:>9.2f}"


def order_lines(orders: Iterable[Order]) -> Iterator[str]:
    """What came out of each order: as published, not, or undecided."""
    for order in orders:
        where = f"Figure {order.figure}, {order.problem}, {order.reading}"
        undecided = "; ".join(map(str, order.undecided))
        if order.inverted:
            pairs = "; ".join(f"{worse} above {better}" for better, worse in order.inverted)
            verdict = f"NOT the published order: {pairs}"
        elif undecided:
            verdict = "the published order where it is decided"
        else:
            verdict = f"the published order ({' > '.join(order.ours)})"
        yield f"{where}: {verdict}" + (f"; undecided: {undecided}" if undecided else "")
