"""A file that is written is there whole, or as it was."""

import errno
import os
import stat
from pathlib import Path

import pytest

from runtime.transport.zmq_sockets import KeyPair
from runtime.whole_file import write_whole


def test_it_is_for_its_owner_alone_and_in_the_place_of_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    path.write_text("old")
    write_whole(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_whole_changes_nothing_and_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "curve.key"
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            KeyPair.load_or_create(path)
        assert not path.exists()
    assert KeyPair.load_or_create(path) == KeyPair.load(path)
