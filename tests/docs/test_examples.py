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


@pytest.mark.parametrize("what", ["secret", "body", "delivery", "old", "early", "garbled"])
def test_it_takes_nothing_else(what: str) -> None:
    number = str(uuid.uuid4())
    off_s = {"old": -OLDEST_S - 60, "early": OLDEST_S + 60}.get(what, 0)
    moment = datetime.now(UTC) + timedelta(seconds=off_s)
    given = signing.signature(SECRET, body=BODY, delivery=number, at=moment)
    assert not came_from_the_site(
        "other" if what == "secret" else SECRET,
        "v1=;t=x" if what == "garbled" else given,
        str(uuid.uuid4()) if what == "delivery" else number,
        b"{}" if what == "body" else BODY,
    )
