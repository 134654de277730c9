"""One figure of a table, and what a table says about the order of methods."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, permutations
from statistics import fmean

AS_PUBLISHED = "as published"
EQUAL_TERMS = "equal terms"
DECODE = "offline decode tokens/s"
# Published figures this close together have no order: 124.7 against 124.3, say.
_TIE = 0.01


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
class Order:
    """Methods by a quantity, best first, as published and by our means.

    `ties` are pairs whose published figures are too close for an order; `level` are pairs, either
    way round, whose means of ours differ by no more than what one of them spreads over the seeds.
    """

    figure: int
    problem: str
    reading: str
    quantity: str
    published: tuple[str, ...]
    ours: tuple[str, ...]
    ties: frozenset[tuple[str, str]] = frozenset()
    level: frozenset[tuple[str, str]] = frozenset()

    @property
    def inverted(self) -> tuple[tuple[str, str], ...]:
        """Pairs whose published order ours turns round, the published better first."""
        position = {method: index for index, method in enumerate(self.ours)}
        return tuple(
            (better, worse)
            for better, worse in combinations(self.published, 2)
            if (better, worse) not in self.ties and position[better] > position[worse]
        )

    def as_dict(self) -> dict[str, object]:
        return {
            **asdict(self),
            "ties": sorted(self.ties),
            "level": sorted(self.level),
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
                level=frozenset(
                    (one.method, other.method)
                    for one, other in permutations(compared, 2)
                    if abs(one.mean - other.mean) <= max(one.spread, other.spread)
                ),
                ours=tuple(
                    row.method for row in sorted(compared, key=lambda row: row.mean, reverse=True)
                ),
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
    for order in orders:
        where = f"Figure {order.figure}, {order.problem}, {order.reading}"
        if order.inverted:
            pairs = "; ".join(
                f"{worse} above {better}"
                + (" by less than seeds differ" if (better, worse) in order.level else "")
                for better, worse in order.inverted
            )
            yield f"{where}: NOT the published order: {pairs}"
        else:
            yield f"{where}: the published order ({' > '.join(order.ours)})"
