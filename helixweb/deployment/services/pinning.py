"""Pins a checkpoint to one commit, so that all stages and coordinators hold the same weights."""

import logging
from dataclasses import replace

from helixweb.inventory.hub import read_commit
from helixweb.inventory.models_folder import commit_of, find_folder, is_served
from runtime.checkpoints.errors import CheckpointError
from runtime.checkpoints.hub_names import HubName, parse_hub_name
from runtime.checkpoints.metadata import CONFIG

logger = logging.getLogger(__name__)


def pin_checkpoint(checkpoint: str) -> str:
    """`owner/model@COMMIT` for a name on a hub: the commit of the source that nodes ask first.

    Empty if there is nothing to pin (a path, or a name with a commit), and if no commit can be
    found now, which is logged.
    """
    name = parse_hub_name(checkpoint)
    if name is None or name.is_pinned:
        return ""
    try:
        commit = _site_commit(name) or read_commit(name)
    except (CheckpointError, OSError) as error:
        logger.warning("%s is deployed without a commit: %s", checkpoint, error)
        return ""
    return str(replace(name, revision=commit))


def may_mix_versions(checkpoint: str) -> bool:
    """True for a name on a hub without a commit, which each node looks up by itself."""
    name = parse_hub_name(checkpoint)
    return name is not None and not name.is_pinned


def _site_commit(name: HubName) -> str | None:
    """Of the site's own copy; None without one. Its branch or tag is unknown. Raises OSError."""
    folder = find_folder(name.repository) if name.is_newest else None
    return commit_of(folder) if folder is not None and is_served(folder / CONFIG) else None
