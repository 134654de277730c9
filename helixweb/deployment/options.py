"""How the stages and the coordinator of a deployment run, and what is allowed."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from helixweb.deployment.models import Deployment

MAX_TOKENS = 2**20
MAX_PAGE_TOKENS = 1024
MAX_REQUESTS = 2**20
MAX_RANKS = 64
MIN_HIGH_WATER = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployOptions:
    """Tokens, and a ratio for the high-water mark.

    `max_context_tokens` None: as long as the model's row allows. `tensor_parallel`: ranks that
    share each layer, on every node but those that `tensor_parallel_by_node` names.
    """

    page_tokens: int = 16
    max_batch_tokens: int = 512
    kv_high_water: float = 0.9
    max_queued_requests: int = 64
    max_context_tokens: int | None = None
    tensor_parallel: int = 1
    tensor_parallel_by_node: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, deployment: "Deployment") -> "DeployOptions":
        """Those it was deployed with."""
        return cls(**{option.name: getattr(deployment, option.name) for option in fields(cls)})


DEFAULTS = DeployOptions()
