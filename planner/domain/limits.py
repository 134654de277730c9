"""The largest numbers that a problem may contain.

Each is far beyond any machine of today. Together they keep flows within 63 bits, tables of step
times within a few MB, and every quotient finite.
"""

from collections.abc import Iterable

from planner.domain.errors import InvalidProblem

MAX_LAYERS = 10_000
MAX_BYTES = 1e15
MIN_BYTES_PER_TOKEN = 1e-3
MAX_BYTES_PER_S = 1e15
MAX_SECONDS = 3600.0
# Of a layer with a large batch; estimates extend the slowest profiles to 1 000 tokens in a step.
MAX_LAYER_SECONDS = 1e9
MAX_TOKENS_PER_S = 1e9
# Of all nodes together: capacities are multiples of 2**-30 tokens/s in 63 bits.
MAX_CLUSTER_TOKENS_PER_S = 2.0**32
# Step times are tabulated by whole tokens, up to the last measured point.
MAX_BATCH_TOKENS = 2**18
MAX_MEAN_TOKENS = 1e9
MIN_TOKENS = 1e-3
MAX_TOKEN_LAYERS = 1e15
MAX_COUNT = 10**9
MAX_GPUS = 1024
MAX_PRICE = 1e12


def check_between(where: str, value: float, least: float, most: float) -> None:
    """Raises InvalidProblem with the value and the limit unless least <= value <= most."""
    if not value >= least:
        raise InvalidProblem(f"{where} is {value:g}; it must be {least:g} or more")
    if not value <= most:
        raise InvalidProblem(f"{where} is {value:g}; it must be at most {most:g}")


def check_all_between(where: str, values: Iterable[float], least: float, most: float) -> None:
    """`check_between` for entry j - 1 of `values`, which is for j layers."""
    for layers, value in enumerate(values, start=1):
        check_between(f"{where} for {layers} layers", value, least, most)
