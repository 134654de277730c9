"""Sizes of a decoder and its bytes, from what config.json says of it. Loads no torch."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, Self

from runtime.checkpoints.errors import CheckpointError
from runtime.protocol.head_shares import why_not_shared

DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
# model types whose layers `runtime.models.compact_decoder` has; `transformers` runs the others
COMPACT_FAMILIES = ("llama", "mistral", "qwen2", "qwen3")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderSizes:
    """Sizes of a decoder, whichever code runs it.

    `dtype_name` is the type of activations, and of weights that are not quantised: a key of
    `DTYPE_BYTES`. `layer_bytes` are the weights of each layer as the checkpoint has them.
    `intermediate_size` is the width that one row's MLP activations have at once. `latent_size`:
    what a token leaves in a layer's KV cache instead of keys and values (MLA); 0 for keys and
    values. `quantization` names how the weights of layers are stored; empty: as `dtype_name`.
    """

    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    vocab_size: int
    layer_bytes: tuple[int, ...]
    tie_word_embeddings: bool
    max_position_embeddings: int
    dtype_name: str
    latent_size: int = 0
    quantization: str = ""

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise CheckpointError(
                f"num_attention_heads is {self.num_heads}, not a multiple of num_key_value_heads "
                f"{self.num_kv_heads}; config.json is damaged, download the checkpoint again"
            )
        if self.head_size % 2:
            raise CheckpointError(
                f"head_dim is {self.head_size}; rotary embeddings need an even number"
            )
        if len(self.layer_bytes) != self.num_layers:
            raise CheckpointError(
                f"{len(self.layer_bytes)} layers are described, num_hidden_layers is "
                f"{self.num_layers}; config.json is damaged, download the checkpoint again"
            )

    @property
    def query_size(self) -> int:
        return self.num_heads * self.head_size

    @property
    def kv_size(self) -> int:
        return self.num_kv_heads * self.head_size

    @property
    def element_bytes(self) -> int:
        """Bytes of one weight or activation."""
        return DTYPE_BYTES[self.dtype_name]

    @property
    def weights_type(self) -> str:
        """How the weights of layers are stored: a quantisation, or a type such as bfloat16."""
        return self.quantization or self.dtype_name

    @property
    def bytes_per_layer(self) -> int:
        """Weights of the largest layer, norms included."""
        return max(self.layer_bytes)

    @property
    def kv_token_bytes(self) -> int:
        """What one token leaves in the KV cache of one layer."""
        return (self.latent_size or 2 * self.kv_size) * self.element_bytes

    @property
    def embedding_bytes(self) -> int:
        """The token embedding, and as many again for an untied output head."""
        return self.vocab_size * self.hidden_size * self.element_bytes

    def computed_in(self, dtype_name: str) -> Self:
        """The same model with activations, and weights that are not quantised, of this type."""
        new, old = DTYPE_BYTES[dtype_name], self.element_bytes
        layer_bytes = self.layer_bytes
        if not self.quantization:
            layer_bytes = tuple(stored * new // old for stored in layer_bytes)
        return replace(self, dtype_name=dtype_name, layer_bytes=layer_bytes)

    def of_rank(self, ranks: int) -> Self:
        """The sizes that one of `ranks` processes has which share each layer.

        KV heads fewer than ranks are held several times, and so is what MLA keeps of a token.
        Raises CheckpointError when the heads cannot be dealt out evenly.
        """
        kv_heads = 1 if self.latent_size else self.num_kv_heads
        why = why_not_shared(heads=self.num_heads, kv_heads=kv_heads, ranks=ranks)
        if why:
            raise CheckpointError(why)
        return replace(
            self,
            num_heads=self.num_heads // ranks,
            num_kv_heads=max(1, kv_heads // ranks),
            intermediate_size=-(-self.intermediate_size // ranks),
            layer_bytes=tuple(-(-layer // ranks) for layer in self.layer_bytes),
        )

    def weights_bytes(self, first: int, end: int) -> int:
        """Bytes a stage holding layers [first, end) keeps of the weights."""
        return self.weights_bytes_of(range(first, end))

    def weights_bytes_of(self, layers: Collection[int]) -> int:
        """The same for any layers: the embedding goes with layer 0, norm and head with the last."""
        has_head = self.num_layers - 1 in layers
        tables = int(0 in layers) + int(has_head)
        if self.tie_word_embeddings:
            tables = min(tables, 1)
        norm_bytes = self.hidden_size * self.element_bytes if has_head else 0
        layers_bytes = sum(self.layer_bytes[layer] for layer in layers)
        return layers_bytes + tables * self.embedding_bytes + norm_bytes


def is_compact(raw: Mapping[str, Any]) -> bool:
    """True if our own decoder has everything that this config.json asks for."""
    family = raw.get("model_type")
    rope = raw.get("rope_parameters")
    rope = rope if isinstance(rope, Mapping) else {}
    return (
        family in COMPACT_FAMILIES
        and raw.get("hidden_act", "silu") == "silu"
        and not raw.get("mlp_bias")
        # Qwen2 has its bias by nature and no such key; elsewhere it means an output bias as well
        and (family == "qwen2" or not raw.get("attention_bias"))
        and (rope.get("partial_rotary_factor") or raw.get("partial_rotary_factor") or 1) == 1
    )


def require_compact(raw: Mapping[str, Any], *, path: PurePath) -> None:
    """Of a GGUF file, which no other code reads. Raises CheckpointError."""
    if not is_compact(raw):
        raise CheckpointError(
            f"{path}: weights in a GGUF file need one of the families "
            f"{', '.join(COMPACT_FAMILIES)} without biases in its MLP; give the model as a folder "
            "with safetensors"
        )


def parse_dtype_name(raw: Mapping[str, Any], *, path: PurePath) -> str:
    """Of activations and of weights that are not quantised. Raises CheckpointError."""
    name = raw.get("dtype") or raw.get("torch_dtype") or "float32"
    if name not in DTYPE_BYTES:
        raise CheckpointError(
            f"{path}: dtype is {name!r}, which is not supported "
            f"(supported: {', '.join(DTYPE_BYTES)})"
        )
    return str(name)


def parse_quantization(raw: Mapping[str, Any], *, path: PurePath) -> str:
    """How the weights of layers are stored, such as "awq-4bit", "compressed-tensors-w8a8-int8" or
    "fp8-blocks"; empty if they are not quantised. Raises CheckpointError."""
    told = raw.get("quantization_config")
    if told is None:
        return ""
    method = told.get("quant_method") if isinstance(told, Mapping) else None
    if not isinstance(method, str) or not method:
        raise CheckpointError(
            f"{path}: quantization_config is {str(told)[:200]!r}, which names no quant_method; "
            "choose a checkpoint quantised by AWQ, GPTQ or compressed-tensors"
        )
    groups = told.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    if isinstance(first, Mapping):
        return f"{method}-{_scheme(first)}"[:40]
    bits = told.get("bits")
    blocks = "-blocks" if told.get("weight_block_size") else ""
    return f"{method}-{bits}bit"[:40] if bits else f"{method}{blocks}"[:40]


def _scheme(group: Mapping[str, Any]) -> str:
    """Of a group of compressed-tensors: bits of weights and activations, then their type, then
    "blocks" if scales are of blocks. Activations of 16 bits are not quantised."""
    weights, inputs = group.get("weights"), group.get("input_activations")
    weights = weights if isinstance(weights, Mapping) else {}
    inputs = inputs if isinstance(inputs, Mapping) else {}
    kind = {"int": "int", "float": "fp"}.get(str(weights.get("type", "int")), "")
    bits, input_bits = weights.get("num_bits"), inputs.get("num_bits", 16)
    words = [f"w{bits}a{input_bits}"]
    if bits != 4 or kind != "int":
        words.append(f"{kind}{bits}")
    if weights.get("strategy") == "block":
        words.append("blocks")
    return "-".join(words)


def positive(
    raw: Mapping[str, Any], key: str, *, path: PurePath, default: int | None = None
) -> int:
    """A whole number of 1 or more under `key`. Raises CheckpointError."""
    value = raw.get(key)
    if value is None:
        value = default
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise CheckpointError(f"{path}: {key} is {value!r}; it must be a whole number of 1 or more")
    return value
