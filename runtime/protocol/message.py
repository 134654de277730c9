"""What the messages between the site and its processes have in common."""

from pydantic import BaseModel, ConfigDict


class Message(BaseModel):
    """An immutable message; unknown keys, infinities and NaN are refused.

    Pydantic builds a message's validator when the first one is read or written (`defer_build`):
    each process imports all messages and uses a few.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)
