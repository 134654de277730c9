"""Adds models to a site's models folder, whole or not at all, one process per model."""

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from runtime.checkpoints.errors import CheckpointError, disk_errors
from runtime.checkpoints.fetch_progress import Progress
from runtime.checkpoints.metadata import gguf_file
from runtime.checkpoints.model_facts import read_facts
from runtime.checkpoints.safetensors_header import read_entries
from runtime.checkpoints.tensor_holders import INDEX_FILE, tensor_holders
from runtime.checkpoints.weight_places import SMALL_FILES
from runtime.platforms import AlreadyLocked, lock_file

_COPIED = "copied"  # where a hub's partial folder has the commit
_READ_BYTES = 1 << 20


@contextmanager
def partial_folder(folder: Path, version: str) -> Iterator[Path]:
    """A hidden folder beside `folder` to fill, which becomes `folder` at the end.

    After an error it stays, so that the next call with the same `version` goes on. Partial folders
    of other versions are removed. Raises CheckpointError if `folder` exists, and while another
    process fills it.
    """
    part = folder.with_name(f".{folder.name}-{version}")
    with disk_errors(folder, remedy="free disk space, then run the same command again"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder.with_name(f".{folder.name}.lock").open("a+") as lock:
            try:
                lock_file(lock)
            except AlreadyLocked:
                lock.seek(0)
                raise CheckpointError(
                    f"process {lock.read() or 'of another user'} writes {folder} now; wait until "
                    "it has ended, or stop it"
                ) from None
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            require_absent(folder)
            _remove_others(part, folder)
            part.mkdir(exist_ok=True)
            yield part
            part.rename(folder)


def require_absent(folder: Path) -> None:
    """Raises CheckpointError if there is a model, or anything else, at `folder`."""
    if folder.exists() or folder.is_symlink():
        raise CheckpointError(f"{folder} is there already; remove it, or give another name")


def add_checkpoint(path: Path, folder: Path, *, progress: Progress) -> None:
    """Have the checkpoint `path`, a folder of safetensors, at `folder`, which must not exist.

    Files become hard links if both are on one filesystem, else copies that are read back and
    compared. Other files than weights, their index, config.json and the tokenizer stay behind.
    Raises CheckpointError, for a checkpoint that is not whole, too.
    """
    files = _files_of(path)
    with partial_folder(folder, _COPIED) as part:
        try:
            _fill(part, files, progress)
        except BaseException:
            shutil.rmtree(part)
            raise


def _fill(part: Path, files: Sequence[Path], progress: Progress) -> None:
    sizes = [file.stat().st_size for file in files]
    done = 0
    for left in part.iterdir():  # by a process that was killed
        left.unlink()
    for file, size in zip(files, sizes, strict=True):
        if not _linked(file, part / file.name):
            require_room(part, sum(sizes) - done)
            _copy(file, part / file.name)
        done += size
        progress(done, sum(sizes))


def _files_of(path: Path) -> list[Path]:
    """What a node needs of the checkpoint. Raises CheckpointError unless all is there."""
    path = path.absolute()
    read_facts(path)
    if gguf_file(path) is not None:
        raise CheckpointError(f"{path} is a GGUF file; give the folder of a safetensors checkpoint")
    _, holders = tensor_holders(path)
    for file in sorted(set(holders.values())):
        _require_own(file, path)
        held = read_entries(file)
        lacking = [name for name, holder in holders.items() if holder == file and name not in held]
        if lacking:
            raise CheckpointError(
                f"{file} lacks tensor {lacking[0][:80]!r}, which {INDEX_FILE} says it has; "
                "download the checkpoint again"
            )
    small = [file for name in (INDEX_FILE, *SMALL_FILES) if (file := path / name).is_file()]
    for file in small:
        _require_own(file, path)
    return [*sorted(set(holders.values())), *small]


def _require_own(file: Path, folder: Path) -> None:
    """Links may lead within the checkpoint, or, in the cache of `huggingface_hub`, to the files of
    the same repository. Raises CheckpointError."""
    root = folder.resolve()
    if root.parent.name == "snapshots":
        root = root.parent.parent
    if not file.resolve().is_relative_to(root):
        raise CheckpointError(
            f"{file} is a link that leads out of the checkpoint, to {file.resolve()}; put the file "
            "itself there"
        )


def _linked(file: Path, target: Path) -> bool:
    """False if the system cannot link these: other filesystem, other owner."""
    try:
        os.link(file.resolve(), target)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EMLINK):
            return False
        raise
    return True


def _copy(file: Path, target: Path) -> None:
    """Raises OSError, and CheckpointError if the disk returns other bytes than were written."""
    digest = hashlib.sha256()
    with file.open("rb") as source, target.open("wb") as copy:
        while piece := source.read(_READ_BYTES):
            digest.update(piece)
            copy.write(piece)
        copy.flush()
        os.fsync(copy.fileno())
    if sha256_of(target) != digest.hexdigest():
        raise CheckpointError(f"{target} does not hold what was written to it; check that disk")


def sha256_of(file: Path) -> str:
    """Of a whole file, in hex digits. Raises OSError."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def require_room(folder: Path, needed_bytes: int) -> None:
    """Raises CheckpointError if so much does not fit beside `folder`."""
    free = shutil.disk_usage(folder).free
    if needed_bytes > free:
        raise CheckpointError(
            f"{needed_bytes} bytes do not fit into {folder.parent}, where {free} are free; free "
            "some, or set HELIX_MODELS_DIR to another disk"
        )


def _remove_others(part: Path, folder: Path) -> None:
    """Partial folders of earlier versions, which nothing goes on with. Raises OSError."""
    of_folder = re.compile(rf"\.{re.escape(folder.name)}-([0-9a-f]{{40}}|{_COPIED})")
    for other in folder.parent.iterdir():
        if other != part and of_folder.fullmatch(other.name):
            shutil.rmtree(other)
