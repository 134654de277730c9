"""Names of checkpoints on a hub, where hubs are, and what may be wrong with both."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runtime.checkpoints.errors import CheckpointError
from runtime.protocol.weight_access import SITE_PATH, WeightAccess

ENDPOINT = "https://huggingface.co"
SITE = "site"  # the revision of what a site has
_PART = r"[A-Za-z0-9][\w.-]{0,95}"
_NAME = re.compile(rf"(?P<repository>(?:{_PART}/)?{_PART})(?:@(?P<revision>{_PART}))?", re.ASCII)
_GGUF = re.compile(rf"(?P<repository>{_PART}/{_PART})/(?P<file>{_PART}\.gguf)", re.ASCII)
COMMIT = re.compile(r"[0-9a-f]{40}")
_SHOWN_FILES = 20


class HubError(CheckpointError):
    """A file of a repository that cannot be read; the message names it and the remedy."""


class HubUnreachable(HubError):
    """No answer, or none within several tries."""


class MissingFile(HubError):
    """The repository has no such file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubName:
    """A repository, and which revision of it: a branch, a tag or a commit."""

    repository: str
    revision: str = "main"

    def __str__(self) -> str:
        return f"{self.repository}@{self.revision}"

    @property
    def is_newest(self) -> bool:
        """True if no other revision than the default branch is named."""
        return self == HubName(repository=self.repository)

    @property
    def is_pinned(self) -> bool:
        """True if the revision is a commit, which never changes."""
        return COMMIT.fullmatch(self.revision) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSettings:
    """Which hub to ask, by the environment variables of `huggingface_hub`; or a site, which speaks
    the same API and has models by name or by path.

    `ca`: certificates to trust beside the system's issuers.
    """

    endpoint: str = ENDPOINT
    token: str = field(default="", repr=False)
    offline: bool = False
    is_site: bool = False
    ca: Path | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "HubSettings":
        """HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE."""
        return cls(
            endpoint=(environment.get("HF_ENDPOINT") or ENDPOINT).rstrip("/"),
            token=environment.get("HF_TOKEN", "").strip(),
            offline=environment.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"),
        )

    @property
    def remedy(self) -> str:
        """What to check when no answer comes."""
        return "the site" if self.is_site else "HF_ENDPOINT"


def parse_hub_name(text: str) -> HubName | None:
    """`owner/model` or `model`, with `@revision` or without; None for anything else."""
    found = _NAME.fullmatch(text)
    if found is None or ".." in text or "--" in found["repository"]:
        return None
    return HubName(repository=found["repository"], revision=found["revision"] or "main")


def parse_gguf_name(text: str) -> tuple[HubName, str] | None:
    """The repository and the file of `owner/model/file.gguf`; None for anything else."""
    found = _GGUF.fullmatch(text)
    name = None if found is None else parse_hub_name(found["repository"])
    return None if found is None or name is None else (name, found["file"])


def gguf_remedy(repository: str, files: Sequence[str]) -> str:
    """What to do with the GGUF files of a repository, of which nodes cannot fetch layers."""
    shown = ", ".join(files[:_SHOWN_FILES]) + (", ..." if len(files) > _SHOWN_FILES else "")
    return (
        f"{repository} has its weights as GGUF ({shown}), of which nodes cannot fetch single "
        f"layers; run `helixweb model pull {repository}/{files[0]}` on the site's machine, put "
        "the file at the same path on every node, and give that path"
    )


def name_at(checkpoint: str, source: HubSettings) -> HubName | None:
    """How `source` names a checkpoint: a hub has names alone, a site paths of its own, too.

    None if it cannot have it: a site does not know of which branch or tag its copy is.
    """
    name = parse_hub_name(checkpoint)
    if not source.is_site or (name is not None and name.is_pinned):
        return name
    if name is not None:
        return HubName(repository=name.repository, revision=SITE) if name.is_newest else None
    if checkpoint.startswith("/"):
        return HubName(repository=checkpoint.strip("/"), revision=SITE)
    return None


def weight_sources(access: WeightAccess) -> tuple[HubSettings, ...]:
    """Where to look, in this order: the site, the hub."""
    site = HubSettings(
        endpoint=access.site.rstrip("/") + SITE_PATH,
        token=access.credential,
        is_site=True,
        ca=Path(access.ca) if access.ca else None,
    )
    return (*((site,) if access.site else ()), HubSettings.from_environment())


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
