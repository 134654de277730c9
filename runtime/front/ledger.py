"""Hears of every request of a front: what it took, and where it went."""


class Ledger:
    """Hears of each request by its number, in this order; `sent` perhaps several times.

    This one keeps nothing.
    """

    def arrived(self, request: int, *, asker: str) -> None:
        """It is here, and waits for an instance; `asker` is the hash of its client's key."""

    def sent(self, request: int, instance: str) -> None:
        """An instance has it now."""

    def produced(self, request: int, tokens: int) -> None:
        """So many tokens of a stream came at once."""

    def answered(self, request: int, usage: tuple[int, int] | None) -> None:
        """It ended well; `usage` are prompt and output tokens, where the instance reports them."""

    def gone(self, request: int, *, failed: bool) -> None:
        """It is over, always said; `failed` by no fault of the client's."""
