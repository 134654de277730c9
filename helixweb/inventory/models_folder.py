"""The checkpoints in the site's models folder (`HELIX_MODELS_DIR`) that nodes may fetch."""

import hashlib
import os
from pathlib import Path

from django.conf import settings

from runtime.checkpoints.tensor_holders import INDEX_FILE
from runtime.checkpoints.weight_places import SMALL_FILES

WHOLE_FILES = (*SMALL_FILES, INDEX_FILE)
_SUFFIX = ".safetensors"


def find_folder(model: str) -> Path | None:
    """The folder of a model, by its path on the site or by its name below the models folder."""
    if settings.HELIX_MODELS_DIR and "\0" not in model:
        root = Path(settings.HELIX_MODELS_DIR).resolve()
        for path in (Path("/") / model, root / model):
            found = path.resolve()
            if found.is_relative_to(root) and found != root and found.is_dir():
                # hidden folders contain downloads in progress
                is_whole = not any(part[0] == "." for part in found.relative_to(root).parts)
                return found if is_whole else None
    return None


def is_served(path: Path) -> bool:
    """True for weights, their index, config.json and the tokenizer; links may lead nowhere else."""
    root = Path(settings.HELIX_MODELS_DIR).resolve()
    return _is_known(path.name) and path.is_file() and path.resolve().is_relative_to(root)


def commit_of(folder: Path) -> str:
    """40 hex digits in place of a commit; they change whenever a file that is served changes.

    `folder` is one that `find_folder` found. Computed for each range of a tensor that is served.
    """
    parts = []
    with os.scandir(folder) as entries:
        known = sorted((each for each in entries if _is_known(each.name)), key=lambda one: one.name)
    for entry in known:
        # to resolve each path costs more than all else; only links can lead out of the folder
        if is_served(Path(entry.path)) if entry.is_symlink() else entry.is_file():
            state = entry.stat()
            parts.append(f"{entry.name} {state.st_size} {state.st_mtime_ns}")
    text = "\n".join(parts).encode()
    return hashlib.sha1(text, usedforsecurity=False).hexdigest()


def _is_known(name: str) -> bool:
    return name in WHOLE_FILES or name.endswith(_SUFFIX)
