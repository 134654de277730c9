"""Dinic's algorithm: shortest augmenting paths, a phase for each length.

`dinic.c` is the same compiled and gives the same flow on every edge. Change both together.
"""

from planner.integer_flow.network import IntegerFlow, IntegerNetwork, integers


def maximum_flow(network: IntegerNetwork) -> IntegerFlow:
    """A maximum flow of the network."""
    residual = _Residual(network)
    value = 0
    while residual.find_levels():
        while push := residual.push_one_path():
            value += push
    return IntegerFlow(
        value=value,
        flows=integers(residual.flows()),
        from_source=integers([int(level >= 0) for level in residual.levels]),
    )


class _Residual:
    """What is left of every edge, forth and back."""

    def __init__(self, network: IntegerNetwork) -> None:
        self._source, self._sink = network.source, network.sink
        self._edges_of: list[list[int]] = [[] for _ in range(network.num_vertices)]
        self._heads: list[int] = []
        self._rest: list[int] = []
        # Edge 2 e is edge e of the network, 2 e + 1 the way back.
        for tail, head, capacity in zip(
            network.tails.tolist(), network.heads.tolist(), network.capacities.tolist(), strict=True
        ):
            for vertex, other, rest in ((tail, head, capacity), (head, tail, 0)):
                self._edges_of[vertex].append(len(self._heads))
                self._heads.append(other)
                self._rest.append(rest)
        self.levels: list[int] = []
        self._current: list[int] = []

    def find_levels(self) -> bool:
        """Levels anew, by breadth first; False when no flow reaches the sink."""
        self.levels = [-1] * len(self._edges_of)
        self._current = [0] * len(self._edges_of)
        self.levels[self._source] = 0
        queue = [self._source]
        for vertex in queue:
            for edge in self._edges_of[vertex]:
                head = self._heads[edge]
                if self._rest[edge] > 0 and self.levels[head] < 0:
                    self.levels[head] = self.levels[vertex] + 1
                    queue.append(head)
        return self.levels[self._sink] >= 0

    def push_one_path(self) -> int:
        """What one augmenting path along the levels carries, found depth first; 0 without any."""
        path: list[int] = []
        vertex = self._source
        while vertex != self._sink:
            if self._current[vertex] == len(self._edges_of[vertex]):
                if not path:
                    return 0
                vertex = self._heads[path.pop() ^ 1]
                self._current[vertex] += 1
                continue
            edge = self._edges_of[vertex][self._current[vertex]]
            head = self._heads[edge]
            if self._rest[edge] > 0 and self.levels[head] == self.levels[vertex] + 1:
                path.append(edge)
                vertex = head
            else:
                self._current[vertex] += 1
        push = min(self._rest[edge] for edge in path)
        for edge in path:
            self._rest[edge] -= push
            self._rest[edge ^ 1] += push
        return push

    def flows(self) -> list[int]:
        return self._rest[1::2]
