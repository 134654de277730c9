"""A client of the REST API, for scripts and for the command line. Needs httpx, no Django.

    with Client("https://helix.example.org", key="hlx_…") as client:
        for node in client.nodes.all(cluster=1):
            print(node["name"], node["state"])

Rows are plain dicts (`rows.py`); refusals are exceptions (`errors.py`).
"""

from helixweb.client.client import Client
from helixweb.client.connection import BadAddress, Connection, Page, Row, Tagged
from helixweb.client.errors import (
    Changed,
    ClientError,
    Conflict,
    FieldError,
    Malformed,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    NotTheApi,
    Problem,
    ServerFailed,
    TooManyRequests,
    Unreachable,
)
from helixweb.client.events import Event
from helixweb.client.rows import Rows

__all__ = [
    "BadAddress",
    "Changed",
    "Client",
    "ClientError",
    "Conflict",
    "Connection",
    "Event",
    "FieldError",
    "Malformed",
    "NotAllowed",
    "NotAuthenticated",
    "NotFound",
    "NotTheApi",
    "Page",
    "Problem",
    "Row",
    "Rows",
    "ServerFailed",
    "Tagged",
    "TooManyRequests",
    "Unreachable",
]
