"""What was tested with vLLM: the families and the kinds of weights that the tests declare."""

from runtime.protocol.engines import VLLM_VERSION
from tests.runtime.vllm_families import (
    EQUAL_TO_VLLM,
    NEAR_ROUNDED,
    REFUSED_ON_CPUS,
    VLLM_FAMILIES,
)

HEAD = f"""# Families and weights tested with vLLM

Tiny models with random weights, on CPUs, with vLLM {VLLM_VERSION} (`make test-vllm`).

- *tokens*: float32, overlapping stages, partial routes, prompts in chunks, 20 requests at once.
  Each token is that of `transformers`.
- *vLLM*: bfloat16, three stages, partial routes. Each token is that of whole vLLM, with hidden rows
  and residuals sent apart (for the test only).
- *logits*: bfloat16, one stage and three. Logits are closer to those of the rounded weights than
  rounding moved them.
- *refused*: CPUs without AMX have no kernel. The stage says so when it starts.
- An empty field: not tried.

Models that are not listed may run. A stage refuses what cannot be split, see
[Engines](../operate/engines.md).

"""


def page() -> str:
    """A row for each family, a column for each kind of weights."""
    kinds = [*EQUAL_TO_VLLM, *NEAR_ROUNDED, *REFUSED_ON_CPUS]
    head = ["family", "`model_type`", "not quantised", *kinds]
    rows = [head, ["---"] * len(head)]
    for name, family in sorted(VLLM_FAMILIES.items(), key=lambda item: item[0].casefold()):
        tested = [_tested(name, kind) for kind in kinds]
        rows.append([name, f"`{family.model_type}`", "tokens", *tested])
    return HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _tested(family: str, kind: str) -> str:
    how = {"vLLM": EQUAL_TO_VLLM, "logits": NEAR_ROUNDED, "refused": REFUSED_ON_CPUS}
    return next((name for name, kinds in how.items() if kinds.get(kind) == family), "")
