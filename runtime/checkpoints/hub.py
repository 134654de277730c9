"""A client for model repositories on the Hugging Face hub, and on servers with the same API.

Reads small files whole and ranges of large ones. Cut connections are resumed where they ended.
Redirects are followed; the token goes to the hub alone.
"""

import hashlib
import re
import ssl
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import quote

import httpx

from runtime.checkpoints.hub_names import (
    COMMIT,
    HubError,
    HubName,
    HubSettings,
    HubUnreachable,
    MissingFile,
    RepositoryInfo,
    parse_info,
)
from runtime.checkpoints.safetensors_header import LENGTH_BYTES, header_length
from runtime.protocol.proxies import BadProxy, may_use_proxy
from runtime.protocol.trust import trusting, why_untrusted

ResultT = TypeVar("ResultT")

_TIMEOUT_S = 10.0
_MOST_REDIRECTS = 5
_MOST_INFO_BYTES = 32_000_000
_PLAIN = {"Accept-Encoding": "identity"}
_MOST_TRIES = 6  # in a row without a byte
_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 5.0
_RETRIED = (408, 425, 429, 500, 502, 503, 504)


class _Retry(Exception):
    """An answer after which the same request can succeed."""


class Repository:
    """The files of one revision of a repository. A context manager.

    The first answer pins the commit; later answers of another commit, or of another version of a
    file, are refused. On a hub whose default branch is not `main` the hub is asked for its commit.
    """

    def __init__(
        self,
        name: HubName,
        settings: HubSettings,
        *,
        sleep: Callable[[float], None] = time.sleep,
        timeout_s: float = _TIMEOUT_S,
        most_tries: int = _MOST_TRIES,
    ) -> None:
        self._client = http_client(settings, timeout_s=timeout_s)
        self._name = name
        self._settings = settings
        self._sleep = sleep
        self._most_tries = most_tries
        self._commit = name.revision if name.is_pinned else None
        self._etags: dict[str, str] = {}
        self._sizes: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.close()

    @property
    def where(self) -> str:
        """How messages name it."""
        return f"{self._name.repository} on {self._settings.endpoint}"

    def commit(self, file: str) -> str:
        """The commit of the revision, asked for by `file`, which it must have. Raises HubError."""
        if self._commit is None:
            self.file_bytes(file)
        if self._commit is None:
            raise HubError(
                f"{self._settings.endpoint} does not say which commit of {self._name.repository} "
                "it serves; name one, as in owner/model@commit, or set HF_ENDPOINT to another hub"
            )
        return self._commit

    def info(self) -> RepositoryInfo:
        """The commit and the files of the revision, by the hub's API. Raises HubError."""
        path = f"api/models/{quote(self._name.repository)}"
        if not self._name.is_newest:
            path += f"/revision/{quote(self._name.revision, safe='')}"
        url = f"{self._settings.endpoint}/{path}"

        def ask() -> RepositoryInfo:
            with self._errors(""), self._client.stream("GET", url, headers=_PLAIN) as answer:
                self._refuse(answer, "")
                return parse_info(_whole(answer, url, _MOST_INFO_BYTES), where=url)

        return self._tried("", ask)

    def sha256(self, file: str) -> str | None:
        """Of a whole file that was asked for before, where the hub says it: for large ones."""
        etag = self._etags.get(file, "")
        return etag if len(etag) == 64 else None

    def read(self, file: str, *, most_bytes: int) -> bytes:
        """A whole small file, checked by the hub's checksum. Raises HubError, MissingFile."""

        def ask() -> bytes:
            with self._opened(file, {}) as answer:
                return _whole(answer, self.told(file), most_bytes)

        content = self._tried(file, ask)
        etag = self._etags.get(file, "")
        if not _is_content_of(etag, content):
            raise HubError(
                f"{self.told(file)} holds other bytes than its checksum {etag} says; try again, "
                "or set HF_ENDPOINT to another hub"
            )
        return content

    def stream(self, file: str, begin: int, end: int) -> Generator[bytes]:
        """Bytes [begin, end) of a file in order, over as many connections as it takes.

        Raises HubError, MissingFile.
        """
        at = begin
        pauses = self._pauses()
        while at < end:
            try:
                with self._opened(file, {"Range": f"bytes={at}-{end - 1}"}) as answer:
                    self._check_range(answer, file, at, end)
                    before = at
                    for part in answer.iter_raw():
                        if at + len(part) > end:
                            raise HubError(
                                f"{self.told(file)}: {self._settings.endpoint} sent more than the "
                                "bytes that were asked for; set HF_ENDPOINT to another hub"
                            )
                        at += len(part)
                        pauses = self._pauses()
                        yield part
                if at == before:
                    raise _Retry("the answer was empty")
            except (httpx.TransportError, _Retry) as error:
                self._again(pauses, error, file)

    def file_bytes(self, file: str) -> int:
        """The size of a file. Raises HubError, MissingFile."""
        for _ in self.stream(file, 0, 1):
            pass
        return self._sizes[file]

    def safetensors_header(self, file: str, *, most_bytes: int) -> tuple[bytes, int]:
        """The header of a file as JSON, and the bytes of data behind it.

        Raises CheckpointError, MissingFile.
        """
        start = b"".join(self.stream(file, 0, LENGTH_BYTES))
        size = self._sizes[file]
        length = header_length(start, file_bytes=size, source=self.told(file))
        if length > most_bytes:
            raise HubError(
                f"{self.told(file)} has a header of {length} bytes; at most {most_bytes} are read: "
                "give the model as a folder"
            )
        header = b"".join(self.stream(file, LENGTH_BYTES, LENGTH_BYTES + length))
        return header, size - LENGTH_BYTES - length

    @contextmanager
    def _opened(self, file: str, headers: Mapping[str, str]) -> Iterator[httpx.Response]:
        """Raises httpx.TransportError and _Retry for what may succeed later, HubError else."""
        with self._errors(file), ExitStack() as stack:
            answer = stack.enter_context(self._get(file, headers))
            if self._lacks_main(answer):
                with suppress(HubError):  # what it answered says what is wrong
                    self._commit = self.info().commit
                    answer = stack.enter_context(self._get(file, headers))
            self._refuse(answer, file)
            self._pin(answer, file)
            yield answer

    @contextmanager
    def _errors(self, file: str) -> Iterator[None]:
        """Raises httpx.TransportError for what may succeed later, HubError else."""
        try:
            yield
        except httpx.TransportError as error:
            if why := why_untrusted(error):
                raise HubError(
                    f"the certificate of {self._settings.endpoint} is not trusted: {why}; set "
                    "HF_ENDPOINT to a hub that is, or SSL_CERT_FILE to its issuer"
                ) from error
            raise
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise HubError(
                f"{self._settings.endpoint} cannot be asked for {self.told(file)}: {error}; check "
                "HF_ENDPOINT"
            ) from error

    def _get(self, file: str, headers: Mapping[str, str]) -> AbstractContextManager[httpx.Response]:
        revision = self._commit or self._name.revision
        path = f"{quote(self._name.repository)}/resolve/{quote(revision, safe='')}/{quote(file)}"
        return self._client.stream(
            "GET",
            f"{self._settings.endpoint}/{path}",
            headers={**headers, **_PLAIN},
        )

    def _lacks_main(self, answer: httpx.Response) -> bool:
        """True if no revision was named, and the repository has no branch `main`."""
        return (
            answer.status_code == httpx.codes.NOT_FOUND
            and answer.headers.get("X-Error-Code") == "RevisionNotFound"
            and self._commit is None
            and self._name.is_newest
        )

    def _tried(self, file: str, ask: Callable[[], ResultT]) -> ResultT:
        """The result of `ask`, called again after what may succeed later. Raises HubError."""
        pauses = self._pauses()
        while True:
            try:
                return ask()
            except (httpx.TransportError, _Retry) as error:
                self._again(pauses, error, file)

    def _pauses(self) -> Iterator[float]:
        """Seconds between tries that bring nothing, longer each time."""
        counts = range(self._most_tries - 1)
        return (min(_FIRST_PAUSE_S * 2.0**count, _LONGEST_PAUSE_S) for count in counts)

    def _again(self, pauses: Iterator[float], error: Exception, file: str) -> None:
        """Wait before the next try. Raises HubUnreachable once there were too many."""
        pause_s = next(pauses, None)
        if pause_s is None:
            raise HubUnreachable(
                f"{self._settings.endpoint} cannot be reached for {self.told(file)} "
                f"({str(error) or type(error).__name__}); check {self._settings.remedy} and the "
                "network, or give a folder"
            ) from error
        self._sleep(pause_s)

    def _refuse(self, answer: httpx.Response, file: str) -> None:
        if answer.is_success:
            encoding = answer.headers.get("Content-Encoding", "identity")
            if encoding != "identity":
                raise HubError(
                    f"{self._settings.endpoint} compresses {self.told(file)} ({encoding}) though "
                    "it was asked not to; set HF_ENDPOINT to another hub"
                )
            return
        status, code = answer.status_code, answer.headers.get("X-Error-Code", "")
        # a signed address of the store behind the hub can expire; the hub gives a fresh one
        is_of_store = bool(answer.history) and status in (401, 403)
        if status in _RETRIED or is_of_store:
            raise _Retry(f"HTTP {status} of {answer.url.host}")
        if status == httpx.codes.NOT_FOUND and code in ("", "EntryNotFound"):
            raise MissingFile(
                f"{self._settings.endpoint} has no {self.told(file)}; check the name of the model"
            )
        if self._settings.is_site:
            raise HubError(
                f"{self._settings.endpoint} answered HTTP {status} for {self.told(file)}; check "
                "that this machine is still joined, and that site and agent are of one version"
            )
        if status == httpx.codes.UNAUTHORIZED and self._settings.token:
            raise HubError(
                f"{self._settings.endpoint} does not accept HF_TOKEN for {self.told(file)} (HTTP "
                f"401{_why(answer)}); it may have expired: set a new one"
            )
        if status in (401, 403, 404):
            asked, remedy = self._name.repository, "check the name"
            if self._name.is_pinned:
                asked, remedy = str(self._name), "check the name, deploy again if it was replaced"
            raise HubError(
                f"{asked} does not exist on {self._settings.endpoint}, or is not open to this "
                f"machine (HTTP {status}{_why(answer)}); {remedy}, or set HF_TOKEN to a token that "
                "may read it"
            )
        raise HubError(
            f"{self._settings.endpoint} answered HTTP {status} for {self.told(file)}"
            f"{_why(answer)}; check HF_ENDPOINT"
        )

    def _pin(self, answer: httpx.Response, file: str) -> None:
        """Remember commit and version of the file at the first answer, compare at later ones."""
        for hop in (*answer.history, answer):
            commit = hop.headers.get("X-Repo-Commit")
            if commit is None:
                continue
            if self._commit is None and COMMIT.fullmatch(commit):
                self._commit = commit
            if commit != self._commit:
                raise HubError(
                    f"{self.told(file)} is of commit {commit[:80]!r}, not {self._commit}; try again"
                )
            break
        else:
            hop = answer
        etag = hop.headers.get("X-Linked-Etag") or hop.headers.get("ETag") or ""
        etag = etag.removeprefix("W/").strip('"')
        if self._etags.setdefault(file, etag) != etag:
            raise HubError(
                f"{self.told(file)} changed while it was read ({self._etags[file]!r}, then "
                f"{etag[:80]!r}); try again"
            )

    def _check_range(self, answer: httpx.Response, file: str, begin: int, end: int) -> int:
        """Raises HubError unless it holds bytes [begin, end) or the first of them; returns, and
        remembers, the size of the file."""
        told = answer.headers.get("Content-Range", "")
        found = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", told)
        if answer.status_code != httpx.codes.PARTIAL_CONTENT or found is None:
            raise HubError(
                f"{self._settings.endpoint} does not serve parts of {self.told(file)}; set "
                "HF_ENDPOINT to a hub that does, or give a folder"
            )
        first, last, size = (int(number) for number in found.groups())
        if first != begin or not first <= last < min(end, size):
            raise HubError(
                f"{self.told(file)}: bytes {begin}-{end - 1} were asked for, "
                f"{self._settings.endpoint} sends {told!r}; set HF_ENDPOINT to another hub"
            )
        self._sizes[file] = size
        return size

    def told(self, file: str) -> str:
        """How messages name a file."""
        return f"{self._name.repository}/{file}"


def http_client(settings: HubSettings, *, timeout_s: float = _TIMEOUT_S) -> httpx.Client:
    """With the token. Raises HubError for a proxy of the environment that cannot be used."""
    try:
        trust_env = may_use_proxy(settings.endpoint)
    except BadProxy as error:
        raise HubError(str(error)) from error
    return httpx.Client(
        headers={"Authorization": f"Bearer {settings.token}"} if settings.token else {},
        timeout=timeout_s,
        follow_redirects=True,
        max_redirects=_MOST_REDIRECTS,
        trust_env=trust_env,
        verify=_issuers(settings.ca),
    )


@cache
def _issuers(ca: Path | None) -> ssl.SSLContext:
    return trusting(ca)


def _whole(answer: httpx.Response, told: str, most_bytes: int) -> bytes:
    """The body of an answer. Raises HubError for a longer one."""
    content = bytearray()
    for part in answer.iter_raw():
        content += part
        if len(content) > most_bytes:
            raise HubError(f"{told} is longer than {most_bytes} bytes")
    return bytes(content)


def _is_content_of(etag: str, content: bytes) -> bool:
    """False if the checksum in `etag` is of other bytes: SHA-256, or git's SHA-1 of a blob."""
    if re.fullmatch(r"[0-9a-f]{64}", etag):
        return hashlib.sha256(content).hexdigest() == etag
    if re.fullmatch(r"[0-9a-f]{40}", etag):
        blob = b"blob %d\0" % len(content)
        return hashlib.sha1(blob + content, usedforsecurity=False).hexdigest() == etag
    return True


def _why(answer: httpx.Response) -> str:
    message = answer.headers.get("X-Error-Message", "")[:200]
    return f": {message}" if message else ""
