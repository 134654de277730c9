"""KV pages of the engine in Python: held by requests at every stage, as the runtime's stages do.

A page is one layer of one request, a block the pages of all layers it runs at a node for
`page_tokens` tokens. The pages of a whole prompt are reserved when its first rows come, if there is
room for them and for a block more of all others; else the request is refused. A decode that finds
no page takes those of the youngest request, its own perhaps. A request that is refused or preempted
is lost: nodes drop what comes of it, and the coordinator hears of it when the refusal arrives.
"""

from collections.abc import Callable, Iterable

from benchmarks.helix.python_state import Item, Node, Request, Stay


class PythonPages:
    """The pages of all nodes. `requests` are those running; `on_lost` hears where one was lost."""

    def __init__(
        self,
        *,
        page_tokens: int,
        requests: Callable[[], Iterable[Request]],
        on_lost: Callable[[int, Request], None],
    ) -> None:
        self._page_tokens = page_tokens
        self._requests, self._on_lost = requests, on_lost

    def enter(self, node: Node, item: Item) -> bool:
        """Reserve pages for the whole prompt when its first rows come; False without room."""
        request, stay = item.request, item.request.stays[item.stage]
        if stay.blocks:
            return True
        layers = request.stages[item.stage].layers
        blocks = -(-request.prefill_tokens // self._page_tokens)
        if blocks * layers + node.growth > node.setup.pages - node.held:
            return False
        node.arrivals += 1
        stay.came = node.arrivals
        node.growth += layers
        _hold(node, stay, blocks, layers)
        return True

    def lose(self, node: Node, number: int, request: Request, stage: int) -> None:
        """The node ends what it has of the request, and says so to the coordinator."""
        give_back(node, request.stays[stage], request.stages[stage].layers)
        if not request.is_lost:
            request.is_lost = True
            self._on_lost(number, request)

    def make_room(self, node: Node, number: int) -> None:
        """Pages for the decodes of the batch that begin a block; who came first gets them first.

        Who loses its own is still in the batch.
        """
        growing = [item for item in node.batch if _needs_block(node, item)]
        growing.sort(key=lambda item: item.request.stays[item.stage].came)
        for item in growing:
            request, stay = item.request, item.request.stays[item.stage]
            layers = request.stages[item.stage].layers
            while not request.is_lost and node.setup.pages - node.held < layers:
                self.lose(node, number, *self._youngest(number))
            if not request.is_lost:
                _hold(node, stay, 1, layers)

    def _youngest(self, number: int) -> tuple[Request, int]:
        return max(
            (
                (request, stage)
                for request in self._requests()
                for stage, visit in enumerate(request.stages)
                if visit.node == number and request.stays[stage].blocks
            ),
            key=lambda held: held[0].stays[held[1]].came,
        )


def _needs_block(node: Node, item: Item) -> bool:
    """Whether it is a decode that needs a block there; one passes the segments of a node in turn.

    The block is of all layers the request runs at the node, and is taken at the first of them.
    """
    return item.opens_block and item.request.stages[item.stage].segment == node.position


def is_gone(item: Item) -> bool:
    """Whether nodes have nothing to do with it any more: its request lost its pages."""
    return item.request.is_lost or item.request.attempt != item.attempt


def give_back(node: Node, stay: Stay, layers: int) -> None:
    """Free what a request holds at a node, if anything."""
    if stay.blocks:
        node.held -= stay.blocks * layers
        node.growth -= layers
        stay.blocks = 0


def _hold(node: Node, stay: Stay, blocks: int, layers: int) -> None:
    stay.blocks += blocks
    node.held += blocks * layers
    node.held_peak = max(node.held_peak, node.held)
