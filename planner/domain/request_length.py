"""How long a request and its answer are."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLength:
    """Tokens of a prompt and of its answer."""

    input_tokens: int
    output_tokens: int

    def __post_init__(self) -> None:
        if self.input_tokens < 1 or self.output_tokens < 1:
            raise ValueError(
                f"a request of {self.input_tokens} input and {self.output_tokens} output tokens; "
                "both are 1 or more"
            )
