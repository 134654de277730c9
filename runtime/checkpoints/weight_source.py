"""Where the weights of a stage come from: this machine, other nodes, the site, or a hub."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from runtime.checkpoints.decoder_sizes import DecoderSizes
from runtime.checkpoints.fetch_progress import Tell
from runtime.checkpoints.fetching import FetchedCheckpoint, fetch_if_elsewhere
from runtime.checkpoints.model_facts import read_all_entries, read_sizes
from runtime.checkpoints.peer_stores import OpenPeers, no_peers
from runtime.checkpoints.safetensors_header import TensorEntry
from runtime.protocol.weight_access import WeightAccess

Progress = Callable[[int, int], None]  # bytes done, of all


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSource:
    """A checkpoint at `folder`, which may lack tensors until `fetch` has got them."""

    folder: Path
    fetched: FetchedCheckpoint | None = None

    @classmethod
    def of(
        cls,
        checkpoint: str,
        access: WeightAccess | None,
        *,
        peers: OpenPeers = no_peers,
        tell: Tell = lambda _: None,
    ) -> "WeightSource":
        """A path of this machine as it is; anything else by way of the store, if there is one.

        config.json and the tokenizer are there when it returns. `tell` is called with how far each
        later fetch is. Raises CheckpointError.
        """
        fetched = None
        if access is not None:
            fetched = fetch_if_elsewhere(checkpoint, access, peers=peers, tell=tell)
        if fetched is None:
            return cls(folder=Path(checkpoint))
        return cls(folder=fetched.folder, fetched=fetched)

    def entries(self) -> Mapping[str, TensorEntry]:
        """What headers say of all tensors, also if only some are here. Raises CheckpointError."""
        return read_all_entries(self.folder) if self.fetched is None else self.fetched.entries()

    def sizes(self) -> DecoderSizes:
        """Sizes of the whole model. Raises CheckpointError."""
        return read_sizes(self.folder, self.entries)

    def fetch(
        self,
        wanted: Callable[[Collection[str]], Collection[str]],
        *,
        read_bytes: int,
        progress: Progress,
    ) -> Progress:
        """Fetch the tensors that are not here, of those that `wanted` picks from all names.

        Returns the progress for reading `read_bytes` afterwards: `progress` counts both, and may
        raise to stop. Raises CheckpointError.
        """
        if self.fetched is None:
            return progress
        picked = wanted(self.fetched.names())
        count = self.fetched.fetch(picked, lambda done, total: progress(done, total + read_bytes))
        return _after(count, progress)


def _after(count: int, progress: Progress) -> Progress:
    """`progress` of a second part, once `count` bytes of a first are done."""
    return lambda done, total: progress(count + done, count + total)
