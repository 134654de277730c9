"""What every API key asked for and was given: since the start, this minute, and today (UTC)."""

import time
from collections.abc import Callable
from dataclasses import dataclass

MINUTE_S = 60
DAY_S = 86_400


@dataclass(slots=True)
class Spent:
    """Of one key. Totals since the start never shrink; the rest is of `minute` and `day`, counted
    since 1970."""

    requests: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    minute: int = 0
    minute_requests: int = 0
    minute_tokens: int = 0
    day: int = 0
    day_tokens: int = 0


class Spending:
    """Owns what each API key used lately; the access check and the dispatcher call it.

    Keys are distinguished by the hex SHA-256 of the whole.
    """

    def __init__(self, *, unix_time: Callable[[], float] = time.time) -> None:
        self._unix_time = unix_time
        self._spent: dict[str, Spent] = {}

    def of(self, owner: str) -> Spent:
        """As of now: what was spent in another minute, or on another day, is forgotten."""
        now = self._unix_time()
        spent = self._spent.setdefault(owner, Spent())
        minute, day = int(now // MINUTE_S), int(now // DAY_S)
        if spent.minute != minute:
            spent.minute, spent.minute_requests, spent.minute_tokens = minute, 0, 0
        if spent.day != day:
            spent.day, spent.day_tokens = day, 0
        return spent

    def asked(self, owner: str) -> None:
        """A request of the key was let in."""
        spent = self.of(owner)
        spent.requests += 1
        spent.minute_requests += 1

    def given(self, owner: str, *, prompt_tokens: int = 0, output_tokens: int = 0) -> None:
        """So much of its prompts was read, and written for it."""
        if not owner:
            return
        spent = self.of(owner)
        spent.prompt_tokens += prompt_tokens
        spent.output_tokens += output_tokens
        spent.minute_tokens += prompt_tokens + output_tokens
        spent.day_tokens += prompt_tokens + output_tokens

    def minute_left_s(self) -> float:
        """Until the next one begins."""
        return MINUTE_S - self._unix_time() % MINUTE_S

    def day_left_s(self) -> float:
        """Until the next one begins, in UTC."""
        return DAY_S - self._unix_time() % DAY_S

    def now(self) -> float:
        """Unix time."""
        return self._unix_time()
