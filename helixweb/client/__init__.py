"""A client of the REST API, for scripts and for the command line. Needs httpx, no Django.

    with Client("https://helix.example.org", key="hlx_…") as client:
        for node in client.nodes.all(cluster=1):
            print(node["name"], node["state"])

Rows are plain dicts (`client.py`); refusals are exceptions (`errors.py`).
"""

from helixweb.client.client import Client, Page, Rows, Tagged
from helixweb.client.connection import BadAddress, Connection, Row
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
