"""What messages between the site and its processes have in common, and how large numbers may be.

The bounds are what every database keeps, and JSON's readers agree on.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

# Of such as have a column of 32 bits.
SmallCount = Annotated[int, Field(ge=0, lt=2**31)]
# A thousand of them still add up to less than 2^63.
Count = Annotated[int, Field(ge=0, lt=2**53)]
# Seconds since 1970, until the end of the year 9999: what a date can say.
UnixTime = Annotated[float, Field(ge=0, le=253_402_300_799)]
# Of frames between stages.
Uint16 = Annotated[int, Field(ge=0, lt=2**16)]
Uint32 = Annotated[int, Field(ge=0, lt=2**32)]
Uint64 = Annotated[int, Field(ge=0, lt=2**64)]


class Message(BaseModel):
    """An immutable message; unknown keys, infinities and NaN are refused.

    Pydantic builds a message's validator when the first one is read or written (`defer_build`):
    each process imports all messages and uses a few.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)
