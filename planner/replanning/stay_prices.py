"""Cost of stages at every place: the prices of their nodes and the layers that these load."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.bounds.node_kinds import NodeKind
from planner.domain.placement import LayerRange
from planner.replanning.stay_covers import Integers
from planner.replanning.stay_groups import Holder, StayGroup

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

PAYS_OFF = 1e-6  # moved layers


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """The gain of holding a layer, and the costs of a layer, a node of a group and a stage.

    All in layers to load.
    """

    value_of_layer: float
    of_layer: Floats
    of_group: Floats
    of_stage: float = 0.0

    def gains(self, layers: int) -> Floats:
        """Gain of a stage of so many layers at each first layer S, before the cost of its nodes."""
        paid = np.concatenate(([0.0], np.cumsum(self.of_layer)))
        gains: Floats = (
            self.value_of_layer * layers - self.of_stage - (paid[layers:] - paid[:-layers])
        )
        return gains


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offers:
    """Nodes N of one kind: the group of each, its price at first layers S, the cheapest first."""

    group_N: Integers
    price_NS: Floats
    order_NS: Integers


class Loads:
    """Number of layers that nodes of each group must load, for every range."""

    def __init__(
        self, groups: Sequence[StayGroup], kinds: Sequence[NodeKind], *, num_layers: int
    ) -> None:
        self.groups = groups
        self._kinds = kinds
        self.num_layers = num_layers
        self._known: dict[int, Integers] = {}
        self._barred: dict[int, Bools] = {}

    def of_length(self, layers: int) -> Integers:
        """Layers to load, by group G and first layer S."""
        known = self._known.get(layers)
        if known is None:
            known = np.array(
                [
                    [
                        LayerRange(first=first, end=first + layers).beyond(group.held)
                        for first in range(self.num_layers - layers + 1)
                    ]
                    for group in self.groups
                ],
                dtype=np.int64,
            )
            self._known[layers] = known
        return known

    def barred(self, layers: int) -> Bools:
        """True where a node lacks memory for so many layers, by kind K and first layer S."""
        known = self._barred.get(layers)
        if known is None:
            known = np.array(
                [
                    [
                        not kind.may_hold(
                            LayerRange(first=first, end=first + layers), num_layers=self.num_layers
                        )
                        for first in range(self.num_layers - layers + 1)
                    ]
                    for kind in self._kinds
                ],
                dtype=np.bool_,
            )
            self._barred[layers] = known
        return known


class PricedLength:
    """The covers C of one length, priced at first layers S."""

    def __init__(self, loads: Loads, covers_CK: Integers, prices: Prices, *, layers: int) -> None:
        self._layers = layers
        self._covers_CK = covers_CK
        self._groups = loads.groups
        self._offers: dict[int, _Offers] = {}
        self._known: dict[tuple[int, int], list[tuple[int, float]]] = {}
        self.price_CS: Floats = np.zeros((len(covers_CK), loads.num_layers - layers + 1))
        price_GS = prices.of_group[:, np.newaxis] + loads.of_length(layers)
        for kind, most in enumerate(covers_CK.max(axis=0).tolist()):
            if most == 0:
                continue
            group_N: Integers = np.array(
                [
                    number
                    for number, group in enumerate(loads.groups)
                    if group.kind == kind
                    for _ in group.names[:most]
                ],
                dtype=np.int64,
            )
            price_NS = price_GS[group_N]
            order_NS = np.argsort(price_NS, axis=0, kind="stable")
            sums = np.cumsum(np.take_along_axis(price_NS, order_NS[:most], axis=0), axis=0)
            self.price_CS += np.vstack((np.zeros((1, sums.shape[1])), sums))[covers_CK[:, kind]]
            self._offers[kind] = _Offers(group_N=group_N, price_NS=price_NS, order_NS=order_NS)
        barred_KS = loads.barred(layers)
        if barred_KS.any():
            self.price_CS[(covers_CK > 0) @ barred_KS] = math.inf

    def least(self, rows: Integers) -> tuple[Floats, Integers]:
        """The least price of the rows at each first layer, and the row that has it."""
        price_RS = self.price_CS[rows]
        best = price_RS.argmin(axis=0)
        return price_RS[best, np.arange(price_RS.shape[1])], rows[best]

    def holders(self, row: int, first: int) -> list[Holder]:
        """The cover's holders of least price."""
        return self.holders_beside({}, np.array([row]), first)[1]

    def holders_beside(
        self, taken: Mapping[int, int], rows: Integers, first: int
    ) -> tuple[float, list[Holder]]:
        """The least price of the rows and their holders, where nodes of groups are `taken`.

        The price is infinite where none of the rows finds its nodes.
        """
        price_R = self.price_CS[rows, first]
        groups_of: dict[int, list[int]] = {}
        for kind in {self._groups[group].kind for group in taken} & self._offers.keys():
            count_R = self._covers_CK[rows, kind]
            most = int(count_R.max())
            if most == 0:
                continue
            offers = self._cheapest(kind, first)
            dearer, used = [0.0], dict(taken)
            groups: list[int] = []
            for group, price in offers:
                used[group] = used.get(group, 0) + 1
                if used[group] <= len(self._groups[group].names):
                    dearer.append(dearer[-1] + price - offers[len(groups)][1])
                    groups.append(group)
                    if len(groups) == most:
                        break
            dearer += [math.inf] * (most - len(groups))
            price_R += np.array(dearer)[count_R]
            groups_of[kind] = groups
        best = int(price_R.argmin())
        held = LayerRange(first=first, end=first + self._layers)
        return float(price_R[best]), [
            (group, held)
            for kind, count in enumerate(self._covers_CK[rows[best]].tolist())
            if count
            for group in (
                groups_of[kind][:count]
                if kind in groups_of
                else [offer for offer, _ in self._cheapest(kind, first)[:count]]
            )
        ]

    def _cheapest(self, kind: int, first: int) -> list[tuple[int, float]]:
        """The groups of the kind's nodes and their prices, the cheapest first."""
        known = self._known.get((kind, first))
        if known is None:
            offers = self._offers[kind]
            order = offers.order_NS[:, first]
            known = list(
                zip(
                    offers.group_N[order].tolist(),
                    offers.price_NS[order, first].tolist(),
                    strict=True,
                )
            )
            self._known[kind, first] = known
        return known
