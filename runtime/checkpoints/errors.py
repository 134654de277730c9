"""The error of a checkpoint that cannot be used."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class CheckpointError(Exception):
    """A checkpoint we cannot run; the message names the file, the value and the remedy."""


@contextmanager
def disk_errors(
    path: Path, *, remedy: str = "free disk space, or choose another --weights-dir"
) -> Iterator[None]:
    """Raises CheckpointError for what the system says of a disk."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be written: {error.strerror or error}; {remedy}"
        ) from error
