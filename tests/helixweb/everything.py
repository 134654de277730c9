"""The site of tests/e2e/site_world.py, built once by each process that runs tests."""

from typing import Any

from tests.e2e import site_world
from tests.helixweb.recorded import recorded

NAME = "world"


def make_world() -> dict[str, Any]:
    """Rows of a site with something of everything; ids by what they are of."""
    made: dict[str, Any] = recorded(
        lambda: site_world.make_world(NAME, chat_url="http://127.0.0.1:9")
    )
    return made
