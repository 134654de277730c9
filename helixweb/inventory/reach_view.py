"""Which processes reach which, as the page of a cluster shows it. Reads only."""

from collections.abc import Sequence
from dataclasses import dataclass

from helixweb.inventory.services.reachability import CutPair, Party, cut_pairs, weights_cut_pairs

# A larger matrix has the processes of broken pairs alone, and so many of them.
MOST_DRAWN = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachRow:
    """What one process found of each that is drawn: "ok", "cut", "closed" (the machine answers, but
    no stage runs), "no weights" (only the weights port is not reached), "untried", "" (itself)."""

    name: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachView:
    """`untried` are those that have not reported yet, of `count` that can be heard. `cuts` are of
    data ports, `weights_cuts` of ports at which nodes serve weights."""

    count: int
    untried: tuple[str, ...]
    cuts: tuple[CutPair, ...]
    weights_cuts: tuple[CutPair, ...]
    names: tuple[str, ...]
    rows: tuple[ReachRow, ...]


def reach_view(parties: Sequence[Party]) -> ReachView:
    """Of the processes that can be heard, in the order of `parties`."""
    cuts, weights_cuts = tuple(cut_pairs(parties)), tuple(weights_cut_pairs(parties))
    drawn = list(parties)
    if len(drawn) > MOST_DRAWN:
        involved = {name for cut in (*cuts, *weights_cuts) for name in (cut.source, cut.target)}
        drawn = [party for party in parties if party.name in involved][:MOST_DRAWN]
    return ReachView(
        count=len(parties),
        untried=tuple(party.name for party in parties if not party.tried),
        cuts=cuts,
        weights_cuts=weights_cuts,
        names=tuple(party.name for party in drawn),
        rows=tuple(
            ReachRow(
                name=source.name,
                cells=tuple(_cell(source, target) for target in drawn),
            )
            for source in drawn
        ),
    )


def _cell(source: Party, target: Party) -> str:
    if source is target or (source.is_coordinator and target.is_coordinator):
        return ""
    if source.why_not(target):
        return "cut"
    if target.endpoint in source.refused:
        return "closed"
    if source.why_no_weights(target):
        return "no weights"
    return "ok" if source.tried else "untried"
