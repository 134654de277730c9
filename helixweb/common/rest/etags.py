"""Strong ETags: cheap reads of unchanged rows, and edits only of the version that was read.

A list's ETag is a hash of its bytes. A row's is "EDIT-CONTENT". The second half is a hash of the
bytes; If-None-Match compares the whole. The first half is a hash of what users change. If-Match
compares only this half: a heartbeat every two seconds must not make a user's edit fail.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any

from django.utils.cache import get_conditional_response
from django.utils.http import parse_etags
from rest_framework import exceptions
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.encoders import JSONEncoder


class Stale(exceptions.APIException):
    """If-Match names an outdated version of the row."""

    status_code = 412
    default_code = "stale"
    default_detail = (
        "The row was changed since it was read, so nothing was done; read it again, look at what "
        "changed, and send the edit with the new ETag in If-Match."
    )


def edit_tag(data: Mapping[str, Any], *, changing_by_itself: Iterable[str] = ()) -> str:
    """Hash of a row as it is shown, without the fields that change without an edit."""
    apart = frozenset(changing_by_itself)
    edited = {name: value for name, value in data.items() if name not in apart}
    return _hash(json.dumps(edited, cls=JSONEncoder, sort_keys=True).encode())


def tagged(request: Request, response: Response, edit: str) -> Response:
    """`response` with the row's ETag, or 304 in its place where the client has that version."""
    response.edit_tag = edit  # type: ignore[attr-defined]  # kept with answers that are kept
    return _versioned(request, response, lambda content: f'"{edit}-{_hash(content)}"')


def tagged_list(request: Request, response: Response) -> Response:
    """The same of a list, or of a page of one."""
    return _versioned(request, response, lambda content: f'"{_hash(content)}"')


def _versioned(request: Request, response: Response, tag_of: Callable[[bytes], str]) -> Response:
    def finish(rendered: Response) -> Any:
        rendered["ETag"] = etag = tag_of(rendered.content)
        rendered["Cache-Control"] = "private, no-cache"
        if request.method not in ("GET", "HEAD"):
            return None
        return get_conditional_response(request._request, etag=etag, response=rendered)

    response.add_post_render_callback(finish)
    return response


def check_if_match(given: str, edit: str) -> None:
    """Raise Stale unless `given` is a list of tags that contains this version, or a star."""
    if given.strip() == "*":
        return
    if edit not in {tag.strip('"').partition("-")[0] for tag in parse_etags(given)}:
        raise Stale


def _hash(content: bytes) -> str:
    return blake2b(content, digest_size=8).hexdigest()
