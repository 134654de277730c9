"""What a hub says of a repository."""

import json
from dataclasses import dataclass

from runtime.checkpoints.hub_names import (
    COMMIT,
    HubError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryInfo:
    """What a hub says of one revision of a repository: its commit, and its files by path."""

    commit: str
    files: tuple[str, ...]

    @property
    def gguf_files(self) -> tuple[str, ...]:
        """GGUF files outside of folders, sorted; none if the repository has safetensors."""
        if any(file.endswith(".safetensors") for file in self.files):
            return ()
        return tuple(sorted(f for f in self.files if f.endswith(".gguf") and "/" not in f))


def parse_info(content: bytes, *, where: str) -> RepositoryInfo:
    """Raises HubError unless it is what the hub's API says of a model."""
    try:
        raw = json.loads(content)
        commit, files = raw["sha"], tuple(str(one["rfilename"]) for one in raw["siblings"])
    except (ValueError, KeyError, TypeError, RecursionError):
        commit, files = None, ()
    if not isinstance(commit, str) or COMMIT.fullmatch(commit) is None:
        raise HubError(
            f"{where} names no commit; name one, as in owner/model@commit, or set HF_ENDPOINT to "
            "a server with the API of Hugging Face's hub"
        )
    return RepositoryInfo(commit=commit, files=files)
