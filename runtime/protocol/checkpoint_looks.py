"""The site asks an agent what lies at a path of its machine, and the agent answers with facts.

An order stands in the node's desired state until a heartbeat answers it or the site's patience
ends, so nothing depends on one message arriving. Only agents that ask for orders get them
(`TAKES_LOOKS`): those of earlier releases refuse a desired state with fields they do not know.
"""

from pydantic import Field

from runtime.protocol.message import Count, Message, SmallCount

MOST_LOOKS = 8  # at once
LONGEST_PATH = 500
LOOKS_PARAMETER = "looks"
TAKES_LOOKS = f"{LOOKS_PARAMETER}=true"  # in the query for a desired state


class ModelFacts(Message):
    """The numbers of a model as its checkpoint has them; bytes as a stage would hold them.

    `checkpoint` is where it was read, `name` what it may be called. `bytes_per_layer` is that of
    the largest layer. `head_bytes` is the output head with the norm before it; the norm alone if
    the embedding is the output head too. Weights of layers that differ add up to less than
    `weights_bytes` says. `why_not_split`: why no stage can run it; empty: nothing is known to
    prevent it.
    """

    checkpoint: str = Field(min_length=1, max_length=500)
    name: str = Field(min_length=1, max_length=120)
    architecture: str = Field(max_length=80)
    dtype: str = Field(max_length=40)
    num_layers: int = Field(ge=1, lt=2**31)
    bytes_per_layer: Count
    embedding_bytes: Count
    head_bytes: Count
    activation_bytes_per_token: Count
    token_bytes: SmallCount
    num_heads: SmallCount
    num_kv_heads: SmallCount
    head_dim: SmallCount
    hidden_size: int = Field(ge=1, lt=2**31)
    intermediate_size: SmallCount
    vocab_size: SmallCount
    max_context_tokens: SmallCount
    why_not_split: str = Field(default="", max_length=300)

    @property
    def element_bytes(self) -> int:
        """Bytes of one weight or activation."""
        return self.activation_bytes_per_token // self.hidden_size

    @property
    def weights_bytes(self) -> int:
        """All weights: layers, embedding and output head."""
        return self.num_layers * self.bytes_per_layer + self.embedding_bytes + self.head_bytes


class LookOrder(Message):
    """Read what the checkpoint at `path` says of its model; load nothing of it."""

    id: int = Field(ge=1, lt=2**53)
    path: str = Field(min_length=1, max_length=LONGEST_PATH)


class LookAnswer(Message):
    """What the agent found: `facts`, or the `error` that says why there are none."""

    id: int = Field(ge=1, lt=2**53)
    facts: ModelFacts | None = None
    error: str = Field(default="", max_length=2000)
