"""The folder of a site on this machine: made for its user alone, used by one `up` at a time."""

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from helixweb.command_line.failures import CommandFailed
from helixweb.places import default_data_dir

LEAST_FREE_BYTES = 50_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFolder:
    """The folder of all data of the site that is not in a service."""

    path: Path

    @classmethod
    def of(cls, given: Path | None, environ: Mapping[str, str]) -> "DataFolder":
        """The folder by `--data`, HELIX_DATA_DIR or the default. Raises CommandFailed."""
        named = given or (
            Path(environ["HELIX_DATA_DIR"]) if environ.get("HELIX_DATA_DIR") else None
        )
        path = (named or default_data_dir(environ)).expanduser().resolve()
        folder = cls(path=path)
        folder._make()
        return folder

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def coordinator(self) -> Path:
        """Folder of the identity and keys of the coordinator that `up` runs."""
        return self.path / "coordinator"

    @property
    def coordinator_credential(self) -> str:
        """The coordinator's credential; empty if it has not joined."""
        return self._of_membership("credential")

    @property
    def coordinator_cluster(self) -> str:
        """The name of the cluster that it joined; empty: none."""
        return self._of_membership("cluster")

    def _of_membership(self, name: str) -> str:
        try:
            kept = json.loads((self.coordinator / "identity.json").read_text(encoding="utf-8"))
            return str(kept["membership"][name])
        except (OSError, ValueError, KeyError, TypeError):
            return ""

    @property
    def ready_file(self) -> Path:
        """The worker makes it once it takes tasks."""
        return self.path / "worker.ready"

    def worker_began_s(self) -> tuple[float, bool] | None:
        """When `up` was last asked for a worker here, in Unix seconds, and whether that one takes
        tasks since; the time is that of the later. None: it never was."""
        asked, ready = _changed_s(self._lock("worker")), _changed_s(self.ready_file)
        if asked is None:
            return None
        return (asked, False) if ready is None or ready < asked else (ready, True)

    def _lock(self, role: str) -> Path:
        return self.path / f"lock.{role}"

    @contextlib.contextmanager
    def locked(self, roles: Iterable[str]) -> Iterator["DataFolder"]:
        """While inside, no other `up` runs one of `roles` here. Raises CommandFailed."""
        with contextlib.ExitStack() as locks:
            for role in sorted(roles):
                lock = locks.enter_context(self._lock(role).open("w"))
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise CommandFailed(
                        f"another `helixweb up` runs the role {role} with the data in {self.path}; "
                        "stop that one, or give this one a folder of its own with --data"
                    ) from None
            yield self

    def _make(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.logs.mkdir(exist_ok=True, mode=0o700)
        except OSError as error:
            raise CommandFailed(
                f"the data folder {self.path} cannot be made: {error.strerror}; choose another "
                "with --data, or give this user the right to it"
            ) from error
        free = shutil.disk_usage(self.path).free
        if free < LEAST_FREE_BYTES:
            raise CommandFailed(
                f"the disk of the data folder {self.path} has {free / 1e6:.1f} MB left, and a site "
                f"needs {LEAST_FREE_BYTES / 1e6:.0f} MB to start; make room, or choose another "
                "with --data"
            )
        if not os.access(self.path, os.W_OK | os.X_OK):
            raise CommandFailed(
                f"the data folder {self.path} cannot be written to by this user; run "
                f"`chown -R {os.getuid()} {self.path}`, or choose another with --data"
            )


def _changed_s(path: Path) -> float | None:
    """Modification time of a file; None without it."""
    try:
        return path.stat().st_mtime
    except OSError:
        return None
