"""Files that are there whole, or as they were: also after a kill or a loss of power."""

import os
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """For its owner alone, and durable when this returns. Raises OSError, having changed nothing
    at `path`."""
    new = path.with_suffix(path.suffix + ".new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
