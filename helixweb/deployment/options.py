"""How the stages and the coordinator of a deployment run, and what is allowed."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from django.utils.translation import gettext as _

from planner.domain.instance import BACKENDS
from planner.routers.load_aware import DEFAULT_THETA
from runtime.protocol.engines import Engine

if TYPE_CHECKING:
    from helixweb.deployment.models import Deployment
    from helixweb.inventory.models import LanguageModel

MAX_TOKENS = 2**20
MAX_PAGE_TOKENS = 1024
MAX_REQUESTS = 2**20
MAX_RANKS = 64
MIN_HIGH_WATER = 0.05
MIN_THETA = 0.01
ENGINES = tuple(engine.value for engine in Engine)
_NOT_OF_A_HOST = frozenset(" ?#")  # paths are put behind what is given


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployOptions:
    """Tokens, and a ratio for the high-water mark.

    `max_context_tokens` None: as long as the model's row allows. `tensor_parallel`: ranks that
    share each layer, on every node but those that `tensor_parallel_by_node` names; `engine` and
    `engine_by_node` name what computes the layers in the same way. Of whole-model
    instances: `backend_by_node` names a backend, or the URL of somebody's server, where it is not
    the plan's; `theta` is how much a full one counts when they are chosen among (Xiong et al.).
    """

    page_tokens: int = 16
    max_batch_tokens: int = 512
    kv_high_water: float = 0.9
    max_queued_requests: int = 64
    max_context_tokens: int | None = None
    tensor_parallel: int = 1
    tensor_parallel_by_node: Mapping[str, int] = field(default_factory=dict)
    engine: str = Engine.AUTO.value
    engine_by_node: Mapping[str, str] = field(default_factory=dict)
    backend_by_node: Mapping[str, str] = field(default_factory=dict)
    theta: float = DEFAULT_THETA

    @classmethod
    def of(cls, deployment: "Deployment") -> "DeployOptions":
        """Those it was deployed with."""
        return cls(**{option.name: getattr(deployment, option.name) for option in fields(cls)})

    def engine_of(self, node_name: str) -> Engine:
        """What the node is asked to compute layers with: its own, or that of all nodes."""
        return Engine(self.engine_by_node.get(node_name, self.engine))

    def for_model(self, model: "LanguageModel") -> "DeployOptions":
        """With the model's engine where none is named."""
        return replace(self, engine=model.engine) if self.engine == Engine.AUTO else self


DEFAULTS = DeployOptions()
OPTION_NAMES = tuple(option.name for option in fields(DeployOptions))


def is_url(backend: str) -> bool:
    """Whether it names somebody's server."""
    return backend.startswith(("http://", "https://"))


def trouble_of_engine(text: str) -> str:
    """Why that is no engine, and what would be; empty if it is."""
    if text in ENGINES:
        return ""
    return _("%(text)s is no engine; write auto, vllm or helix") % {"text": repr(text)}


def trouble_of_backend(text: str) -> str:
    """Why that is neither a backend nor a URL, and what would be; empty if it is."""
    if text in BACKENDS:
        return ""
    remedy = _("write helix, vllm, transformers, or http(s)://HOST:PORT")
    try:
        parts = urlsplit(text)
        has_host = is_url(text) and bool(parts.hostname) and parts.port != 0
    except ValueError:
        has_host = False
    is_plain = text.isprintable() and not set(text) & _NOT_OF_A_HOST
    if not has_host or not is_plain or parts.path not in ("", "/"):
        return _("%(text)s is no backend; %(remedy)s") % {"text": repr(text), "remedy": remedy}
    return ""
