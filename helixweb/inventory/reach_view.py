"""Which processes reach which, as the page of a cluster shows it. Reads only."""

from collections.abc import Sequence
from typing import Any

from helixweb.inventory.link_sampling import Member
from helixweb.inventory.services.reachability import cut_pairs, weights_cut_pairs

# A larger matrix has the processes of broken pairs alone, and so many of them.
MOST_DRAWN = 12


def reach_view(parties: Sequence[Member]) -> dict[str, Any]:
    """Of the processes that can be heard, in the order of `parties`.

    `untried` are those that have not reported yet, of `count`; `cuts` are of data ports,
    `weights_cuts` of ports at which nodes serve weights. A row has a cell for each name.
    """
    cuts, weights_cuts = cut_pairs(parties), weights_cut_pairs(parties)
    drawn = list(parties)
    if len(drawn) > MOST_DRAWN:
        involved = {name for cut in (*cuts, *weights_cuts) for name in (cut.source, cut.target)}
        drawn = [party for party in parties if party.name in involved][:MOST_DRAWN]
    return {
        "count": len(parties),
        "untried": [party.name for party in parties if not party.reach.tried],
        "cuts": cuts,
        "weights_cuts": weights_cuts,
        "names": [party.name for party in drawn],
        "rows": [
            {"name": source.name, "cells": [_cell(source, target) for target in drawn]}
            for source in drawn
        ],
    }


def _cell(source: Member, target: Member) -> str:
    """ "ok", "cut", "closed" (the machine answers, but no stage runs), "no weights" (only the
    weights port is not reached), "untried", "" (itself)."""
    if source is target or (source.is_coordinator and target.is_coordinator):
        return ""
    if source.why_not(target):
        return "cut"
    if target.endpoint in source.reach.refused:
        return "closed"
    if source.why_no_weights(target):
        return "no weights"
    return "ok" if source.reach.tried else "untried"
