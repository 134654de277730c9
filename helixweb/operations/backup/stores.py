"""Stores of backups: a folder, or object storage with the S3 API (`s3://BUCKET/PREFIX`).

For S3, address, region and keys come from the environment as boto3 reads it:
AWS_ENDPOINT_URL_S3 for a storage of your own, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from helixweb.command_line.failures import CommandFailed
from helixweb.operations.backup.folder import SUFFIX

PREFIX = "helixweb-"


def fresh_name(now: datetime) -> str:
    """A file name by the time, so that names sort by time."""
    return f"{PREFIX}{now.astimezone(UTC):%Y%m%dT%H%M%SZ}{SUFFIX}"


def store_of(target: str) -> tuple["Store", str]:
    """The place, and the name of the file that is meant there, if any. `target` is a file, a folder
    (that exists, or with a slash at the end) or an s3:// URL. Raises CommandFailed."""
    scheme = urlsplit(target).scheme if "://" in target else ""
    if scheme == "s3":
        return _in_bucket(target)
    if scheme:
        raise CommandFailed(f"{target!r}: give a file, a folder, or s3://BUCKET/PREFIX/")
    path = Path(target).expanduser()
    if target.endswith("/") or path.is_dir():
        return FolderStore(path), ""
    return FolderStore(path.parent), path.name


def forget_old(store: "Store", *, keep: int) -> list[str]:
    """Remove all but the last `keep` backups that we named; returns those removed."""
    old = store.names()[:-keep]
    for name in old:
        store.remove(name)
    return old


class FolderStore:
    """A folder on this machine. `writing` and `reading` give the path of a file within."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        path = self._folder / name
        try:
            yield path
        except OSError as error:
            raise CommandFailed(f"{path} cannot be written: {error}") from error

    def reading(self, name: str) -> AbstractContextManager[Path]:
        return nullcontext(self._folder / name)

    def address(self, name: str) -> str:
        return str(self._folder / name)

    def names(self) -> list[str]:
        return sorted(path.name for path in self._folder.glob(f"{PREFIX}*{SUFFIX}"))

    def remove(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)


class BucketStore:
    """A bucket of object storage; names are below `prefix`. The files are here meanwhile."""

    def __init__(self, bucket: str, prefix: str) -> None:
        try:
            import boto3.session
            from boto3.exceptions import Boto3Error
            from botocore.exceptions import BotoCoreError, ClientError
        except ModuleNotFoundError as error:
            raise CommandFailed(
                "object storage needs a package more: pip install 'helixweb[s3]'"
            ) from error
        self._faults = (Boto3Error, BotoCoreError, ClientError, ValueError)
        self._bucket, self._prefix = bucket, prefix
        with self._reached():
            self._client: Any = boto3.session.Session().client("s3", config=_config())

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="helixweb-backup-") as folder:
            yield Path(folder) / name
            with self._reached():
                self._client.upload_file(f"{folder}/{name}", self._bucket, self._prefix + name)

    @contextmanager
    def reading(self, name: str) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="helixweb-restore-") as folder:
            with self._reached():
                self._client.download_file(self._bucket, self._prefix + name, f"{folder}/{name}")
            yield Path(folder) / name

    def address(self, name: str) -> str:
        return f"s3://{self._bucket}/{self._prefix}{name}"

    def names(self) -> list[str]:
        listing = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=self._prefix + PREFIX
        )
        with self._reached():
            keys = [entry["Key"] for page in listing for entry in page.get("Contents", [])]
        return sorted(key.removeprefix(self._prefix) for key in keys if key.endswith(SUFFIX))

    def remove(self, name: str) -> None:
        with self._reached():
            self._client.delete_object(Bucket=self._bucket, Key=self._prefix + name)

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Raise CommandFailed for what the storage, or its client, refuses."""
        try:
            yield
        except self._faults as error:
            raise CommandFailed(
                f"object storage {self.address('')} cannot be used: {error}"
            ) from error


Store: TypeAlias = FolderStore | BucketStore


def _config() -> Any:
    """As storages other than Amazon's want it too: no checksums that they may not know, and where
    the address is given, the bucket in the path and not in the host name."""
    from botocore.config import Config

    own = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return Config(
        connect_timeout=10,
        read_timeout=60,
        retries={"mode": "standard", "max_attempts": 3},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path" if own else "auto"},
    )


def _in_bucket(target: str) -> tuple["Store", str]:
    parts = urlsplit(target)
    if not parts.netloc or parts.query or parts.fragment:
        raise CommandFailed(f"{target!r} names no bucket; give s3://BUCKET/PREFIX/")
    folder, _, name = parts.path.lstrip("/").rpartition("/")
    if name and not name.endswith(SUFFIX):
        raise CommandFailed(
            f"{target!r}: end a folder with a slash, and the name of a backup with {SUFFIX}"
        )
    return BucketStore(parts.netloc, f"{folder}/" if folder else ""), name
