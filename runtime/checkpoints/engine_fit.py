"""Which engine of a node runs a model as a stage, or why none does.

One rule for the stage, which chooses by it, and for the site, which asks before it plans and
deploys.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from runtime.checkpoints.decoder_sizes import COMPACT_FAMILIES, DTYPE_BYTES
from runtime.checkpoints.splitting import INSTANCES
from runtime.protocol.engines import Engine, EngineOffer, EngineSettings
from runtime.protocol.translated import gettext_noop as _

GGUF = "gguf"
CPU = "cpu"  # the platform of a node without GPUs
NOT_INSTALLED = _("vLLM is not installed")
OLDEST_CAPABILITY = 75  # of CUDA devices that vLLM has kernels for
# kinds of stored weights that are judged; what else vLLM reads is tried
KINDS = (
    "awq-4bit", "gptq-4bit", "gptq-8bit", "fp8", "fp8-blocks", "mxfp4",
    "compressed-tensors-w4a16", "compressed-tensors-w8a16-int8", "compressed-tensors-w8a8-int8",
    "compressed-tensors-w8a8-fp8", "compressed-tensors-w8a8-fp8-blocks",
)  # fmt: skip
_EXPERTS = frozenset(
    {
        "bailing_moe", "dbrx", "deepseek_v2", "deepseek_v3", "dots1", "ernie4_5_moe", "flex_olmo",
        "glm4_moe", "gpt_oss", "granitemoe", "grok-1", "hunyuan_v1_moe", "minimax_m2", "mixtral",
        "olmoe", "phimoe", "qwen2_moe", "qwen3_moe",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """A clause and its values; the site translates `text`."""

    text: str
    values: Mapping[str, str | int | float] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.text % self.values if self.values else self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """`engine` None: none can run the model, and `remedy` says what to do. `is_slow`: it runs
    without a fast kernel."""

    engine: Engine | None
    reason: Reason
    remedy: Reason = Reason(text="")
    is_slow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTraits:
    """What engines need to know of a model. `weights`: how its layers are stored, a dtype or a
    quantisation; empty: not known. `why_not_split`: why no stage can run it; empty: one can."""

    family: str
    weights: str
    has_own_decoder: bool
    why_not_split: str = ""

    @classmethod
    def by_name(
        cls, *, family: str, weights: str, checkpoint: str, why_not_split: str
    ) -> "ModelTraits":
        """Where config.json is not at hand. `weights` may be a person's words: not known."""
        if weights.startswith(GGUF) or checkpoint.endswith(".gguf"):
            weights = GGUF
        elif weights not in KINDS:
            weights = ""
        return cls(
            family=family,
            weights=weights,
            has_own_decoder=not family or family in COMPACT_FAMILIES,
            why_not_split=why_not_split,
        )

    @property
    def quantization(self) -> str:
        """Empty for plain numbers; "gguf" is a kind of it."""
        return "" if self.weights in DTYPE_BYTES else self.weights

    @property
    def has_experts(self) -> bool:
        return self.family in _EXPERTS


INSTALL = Reason(text=_("run `helix-agent install-engine vllm` on the node, and restart its agent"))
_CHOOSE_HELIX = Reason(text=_("choose the engine helix for it, or auto"))
_CHOOSE_VLLM = Reason(text=_("choose the engine vllm for it, or auto"))
_AS_A_FOLDER = Reason(
    text=_("choose the engine helix, or give the model as a folder with safetensors")
)
_OTHER_WEIGHTS = Reason(text=_("choose a checkpoint of the model with weights of another kind"))
_AS_INSTANCES = Reason(text=INSTANCES)


def offers_of(settings: EngineSettings) -> tuple[EngineOffer, ...]:
    """Of a node: our own engine, and vLLM as far as it is known."""
    vllm = settings.vllm or EngineOffer(engine=Engine.VLLM)
    if not settings.python:
        vllm = EngineOffer(engine=Engine.VLLM, why_not=NOT_INSTALLED)
    own = EngineOffer(
        engine=Engine.HELIX,
        platform="gpu" if settings.has_gpu else CPU,
        dtypes=tuple(DTYPE_BYTES),
        families=COMPACT_FAMILIES,
        quantizations=(GGUF,),
        expert_quantizations=(GGUF,),
    )
    return own, vllm


def choose(
    model: ModelTraits,
    offers: Iterable[EngineOffer],
    *,
    node: Engine = Engine.AUTO,
    deployment: Engine = Engine.AUTO,
) -> Choice:
    """The engine of a stage on a node with `offers`, however many ranks share its layers.

    `node` is the node's own setting, which overrules what the `deployment` asks for.
    """
    if model.why_not_split:
        return _none(
            _("the model cannot be cut into stages: %(why)s"),
            _AS_INSTANCES,
            why=model.why_not_split,
        )
    found = {offer.engine: offer for offer in offers}
    wanted = deployment if node is Engine.AUTO else node
    if wanted is not Engine.AUTO:
        by_deployment = node is Engine.AUTO
        return _why_not(found[wanted], model) or _chosen(
            found[wanted],
            model,
            _("the deployment asks for it")
            if by_deployment
            else _("the node's agent was started with it"),
        )
    own, vllm = found[Engine.HELIX], found[Engine.VLLM]
    own_lacks, vllm_lacks = _why_not(own, model), _why_not(vllm, model)
    if model.weights == GGUF:
        return own_lacks or _chosen(own, model, _("the weights are a GGUF file"))
    if own_lacks is not None:
        if vllm_lacks is None:
            return _chosen(vllm, model, _("the weights are %(kind)s"), kind=model.quantization)
        return _neither(model, vllm, vllm_lacks)
    has_gpu, family = own.platform != CPU, model.family
    if vllm_lacks is None and has_gpu:
        return _chosen(vllm, model, _("its kernels are the fastest on a GPU"))
    if model.has_own_decoder and vllm_lacks is not None and has_gpu:
        return Choice(engine=Engine.HELIX, reason=vllm_lacks.reason)
    if model.has_own_decoder:
        own_decoder = _("HelixWeb has a decoder of its own for the family %(family)s")
        return _chosen(own, model, own_decoder, family=family)
    if vllm_lacks is None:
        no_decoder = _("HelixWeb has no decoder of its own for the family %(family)s")
        return _chosen(vllm, model, no_decoder, family=family)
    by_transformers = _("transformers runs the family %(family)s, slowly: vLLM cannot run it here")
    return _chosen(own, model, by_transformers, family=family)


def _why_not(offer: EngineOffer, model: ModelTraits) -> Choice | None:
    """A choice without an engine, if that one cannot run the model on its node."""
    if offer.why_not:
        return _none(offer.why_not, INSTALL)
    is_vllm, kind = offer.engine is Engine.VLLM, model.quantization
    if is_vllm and kind == GGUF:
        return _none(_("the weights are a GGUF file, which vLLM does not read"), _AS_A_FOLDER)
    if offer.capability is not None and offer.capability < OLDEST_CAPABILITY:
        return _none(
            _("the GPU has compute capability %(capability)s, vLLM needs %(least)s"),
            _CHOOSE_HELIX,
            capability=offer.capability / 10,
            least=OLDEST_CAPABILITY / 10,
        )
    known = offer.expert_quantizations if model.has_experts else offer.quantizations
    if not kind or known is None or kind in known or (is_vllm and kind not in KINDS):
        return None
    if not is_vllm:
        no_reader = _("the weights are %(kind)s, which HelixWeb's own engine does not read")
        return _none(no_reader, _CHOOSE_VLLM, kind=kind)
    no_kernel = (
        _("vLLM has no kernel for experts with %(kind)s weights on this device")
        if model.has_experts
        else _("vLLM has no kernel for %(kind)s weights on this device")
    )
    return _none(no_kernel, _OTHER_WEIGHTS, kind=kind)


def _chosen(offer: EngineOffer, model: ModelTraits, text: str, /, **values: str | int) -> Choice:
    by_transformers = offer.engine is Engine.HELIX and not model.has_own_decoder
    return Choice(
        engine=offer.engine,
        reason=Reason(text=text, values=values),
        is_slow=by_transformers or model.quantization in offer.slow,
    )


def _neither(model: ModelTraits, vllm: EngineOffer, lacks: Choice) -> Choice:
    if not vllm.why_not:
        return replace(lacks, remedy=_OTHER_WEIGHTS)
    return _none(
        _("the weights are quantised (%(kind)s), which needs vLLM on this node"),
        INSTALL,
        kind=model.quantization,
    )


def _none(text: str, remedy: Reason, /, **values: str | int | float) -> Choice:
    return Choice(engine=None, reason=Reason(text=text, values=values), remedy=remedy)
