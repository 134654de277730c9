"""Where a process of a node or a coordinator gets weights that are not on its machine."""

from pydantic import Field

from runtime.protocol.control import PeerAddress
from runtime.protocol.data_security import DataSecurity
from runtime.protocol.message import Count, Message

SITE_PATH = "/api/v1/agent/weights"
PEERS_PATH = "/api/v1/agent/weight-peers"
MOST_PEERS = 16


class WeightAccess(Message):
    """The store of fetched weights at `directory`, at most `quota_bytes` of them, and the site that
    is asked before the hub, with the process's `credential`; `ca`: a file of certificates to trust.

    With a `secret_key_file` (CURVE) the agents of the same deployment are asked first.
    """

    directory: str = Field(min_length=1)
    quota_bytes: int | None = Field(default=None, gt=0)
    site: str = ""
    credential: str = Field(default="", repr=False)
    ca: str = ""
    secret_key_file: str = ""
    security: DataSecurity = DataSecurity.CURVE


class WeightPeers(Message):
    """GET /api/v1/agent/weight-peers: agents of the node's deployment that serve weights.

    Those that run some of the same layers come first. `endpoint` is where they serve them.
    """

    peers: tuple[PeerAddress, ...] = Field(default=(), max_length=MOST_PEERS)


class WeightRequest(Message):
    """Asks an agent for bytes [begin, end) of a file in its store, or which tensors it has.

    `file` is the name of a file below the folder of `repository` at `commit`; empty: list the
    tensors. `number` is in the reply, too.
    """

    number: Count
    repository: str = Field(min_length=1, max_length=1024)
    commit: str = Field(pattern=r"^[0-9a-f]{40}$")
    file: str = Field(default="", max_length=1024)
    begin: Count = 0
    end: Count = 0


class WeightReply(Message):
    """Followed by a frame with the bytes, or with the listing, a JSON object of bytes by tensor.

    `file_bytes` is the size of the whole file; null: this agent does not serve it.
    """

    number: Count
    file_bytes: Count | None = None
