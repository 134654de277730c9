"""The requests of a stage, and what every step asks of all of them, kept as it changes.

A step takes few of hundreds of requests: looking at each one for it cost more than the step's other
work together.
"""

from runtime.engine.sequence import Chunk, RequestKey, Sequence


class RunningRequests:
    """Owns the requests of one stage and their queued rows; the stage and its parts call it.

    Requests that hold pages. Their rows are queued and taken through it alone.
    """

    def __init__(self) -> None:
        self.by_key: dict[RequestKey, Sequence] = {}
        self.waiting: dict[RequestKey, Sequence] = {}  # those with rows to run
        self.decoding = 0  # whose prompt is behind them
        self.layers = 0  # of all, as many as each one runs here: pages, when each grows by a block

    def add(self, sequence: Sequence) -> None:
        """A request that has been admitted, before its first rows are queued."""
        self.by_key[sequence.key] = sequence
        self.decoding += sequence.is_decoding
        self.layers += sequence.end - sequence.first

    def remove(self, key: RequestKey) -> Sequence | None:
        """Forget a request; None: it was not here."""
        sequence = self.by_key.pop(key, None)
        if sequence is not None:
            self.waiting.pop(key, None)
            self.decoding -= sequence.is_decoding
            self.layers -= sequence.end - sequence.first
        return sequence

    def append(self, sequence: Sequence, chunk: Chunk) -> None:
        """Queue the next rows of a resident."""
        sequence.append(chunk)
        self.waiting[sequence.key] = sequence

    def take(self, sequence: Sequence, n_tokens: int) -> Chunk:
        """The next `n_tokens` rows of a resident, at most those of its oldest chunk."""
        was_decoding = sequence.is_decoding
        chunk = sequence.take(n_tokens)
        self.decoding += sequence.is_decoding - was_decoding
        if not sequence.pending:
            del self.waiting[sequence.key]
        return chunk
