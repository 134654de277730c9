"""The programs that the documentation shows do what it says of them."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest

from docs.examples.webhook_receiver import OLDEST_S, came_from_the_site
from helixweb.alerting import signing

SECRET, BODY = "whsec_x", b'{"alerts": []}'


def test_the_receiver_of_the_documentation_takes_what_the_site_signs() -> None:
    number = str(uuid.uuid4())
    given = signing.signature(SECRET, body=BODY, delivery=number, at=datetime.now(UTC))
    assert came_from_the_site(SECRET, given, number, BODY)
    assert timedelta(seconds=OLDEST_S) == signing.TOLERANCE


@pytest.mark.parametrize("what", ["secret", "body", "delivery", "time", "garbled"])
def test_it_takes_nothing_else(what: str) -> None:
    number = str(uuid.uuid4())
    moment = datetime.now(UTC) - timedelta(seconds=OLDEST_S + 60 if what == "time" else 0)
    given = signing.signature(SECRET, body=BODY, delivery=number, at=moment)
    assert not came_from_the_site(
        "other" if what == "secret" else SECRET,
        "v1=;t=x" if what == "garbled" else given,
        str(uuid.uuid4()) if what == "delivery" else number,
        b"{}" if what == "body" else BODY,
    )
