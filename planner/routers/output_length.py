"""Predicts the length of an answer before it is generated (Helix §5.2 uses the average)."""

_PRIOR_REQUESTS, _MEMORY_REQUESTS = 10, 200


class OutputLengthEstimate:
    """A running mean of output tokens, starting from the workload's mean.

    The start counts as `_PRIOR_REQUESTS` observations; after `_MEMORY_REQUESTS` of them the mean
    forgets exponentially, so that a change of traffic is followed.
    """

    def __init__(self, *, mean_output_tokens: float) -> None:
        self._mean = mean_output_tokens
        self._count = _PRIOR_REQUESTS

    @property
    def mean_output_tokens(self) -> float:
        return self._mean

    def observe(self, output_tokens: int) -> None:
        """A request ended after this many output tokens."""
        self._count = min(self._count + 1, _MEMORY_REQUESTS)
        self._mean += (output_tokens - self._mean) / self._count

    def predict(self, *, max_tokens: int) -> int:
        """Expected output tokens of the next request, at least 1 and at most `max_tokens`."""
        return max(1, min(max_tokens, round(self._mean)))
