"""The site asks an agent what lies at a path of its machine, and the agent answers.

An order stands in the node's desired state until a heartbeat answers it or the site's patience
ends, so nothing depends on one message arriving. Only agents that ask for orders get them
(`TAKES_LOOKS`): those of earlier releases refuse a desired state with fields they do not know.
"""

from pydantic import Field

from runtime.protocol.message import Message
from runtime.protocol.model_facts import ModelFacts

MOST_LOOKS = 8  # at once
LONGEST_PATH = 500
LOOKS_PARAMETER = "looks"
TAKES_LOOKS = f"{LOOKS_PARAMETER}=true"  # in the query for a desired state


class LookOrder(Message):
    """Read what the checkpoint at `path` says of its model; load nothing of it."""

    id: int = Field(ge=1, lt=2**53)
    path: str = Field(min_length=1, max_length=LONGEST_PATH)


class LookAnswer(Message):
    """What the agent found: `facts`, or the `error` that says why there are none."""

    id: int = Field(ge=1, lt=2**53)
    facts: ModelFacts | None = None
    error: str = Field(default="", max_length=2000)
