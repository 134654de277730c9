"""A double of S3-compatible object storage: objects in memory, spoken to over HTTP."""

from http.server import ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.answering import QuietHandler

ACCESS_KEY = "keeper"
_PAGE = 2  # few, so that lists come in pages


class ObjectStorage(ThreadingHTTPServer):
    """`objects`: content by `bucket/key`. Refuses who does not sign as `ACCESS_KEY`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(QuietHandler):
    server: ObjectStorage
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        content = self.body()
        if self._is_signed():
            self.server.objects[self._name()] = content
            self.answer(200)

    def do_GET(self) -> None:
        if not self._is_signed():
            return
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query:
            self._list(query)
        elif self._name() in self.server.objects:
            self.answer(200, self.server.objects[self._name()])
        else:
            self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")

    do_HEAD = do_GET

    def do_DELETE(self) -> None:
        if self._is_signed():
            self.server.objects.pop(self._name(), None)
            self.answer(204)

    def _name(self) -> str:
        return unquote(urlsplit(self.path).path).lstrip("/")

    def _is_signed(self) -> bool:
        signed = self.headers.get("Authorization", "")
        if signed.startswith(f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/"):
            return True
        self.answer(403, b"<Error><Code>AccessDenied</Code></Error>")
        return False

    def _list(self, query: dict[str, list[str]]) -> None:
        bucket = self._name()
        prefix = f"{bucket}/{query.get('prefix', [''])[0]}"
        after = query.get("continuation-token", [""])[0]
        names = sorted(name for name in self.server.objects if name.startswith(prefix))
        waiting = [name for name in names if name > after]
        page, more = waiting[:_PAGE], waiting[_PAGE:]
        entries = "".join(
            f"<Contents><Key>{escape(name.removeprefix(bucket + '/'))}</Key></Contents>"
            for name in page
        )
        next_page = (
            f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        )
        truncated = str(bool(more)).lower()
        self.answer(
            200,
            f"<ListBucketResult><IsTruncated>{truncated}</IsTruncated>{entries}{next_page}"
            "</ListBucketResult>".encode(),
        )
