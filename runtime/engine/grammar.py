"""Keeps answers within a JSON schema: which tokens may come next, and when the answer is whole.

Uses llguidance, which is optional (extra `grammar`).

Legend: V vocabulary.
"""

import json
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer


class GrammarError(Exception):
    """This request's answer cannot be kept within its schema; the message says why."""


class Grammars:
    """Schemas over the vocabulary of one checkpoint; its tokenizer is read at the first use."""

    def __init__(self, checkpoint: Path, *, vocab_size: int) -> None:
        self._checkpoint = checkpoint
        self._vocab_size = vocab_size

    def follow(self, schema: str) -> "Grammar":
        """The state of an answer that has not begun. Raises GrammarError."""
        tokenizer = self._tokenizer
        from llguidance import LLMatcher

        try:
            matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_json_schema(schema))
        except ValueError as error:
            raise GrammarError(f"a JSON schema cannot be followed: {error}") from error
        if matcher.is_error():
            raise GrammarError(f"a JSON schema cannot be followed: {matcher.get_error()}")
        return Grammar(matcher)

    @cached_property
    def _tokenizer(self) -> "LLTokenizer":
        try:
            from llguidance import LLTokenizer
        except ImportError:
            raise GrammarError(
                "llguidance is not installed on this node; pip install 'helixweb[grammar]'"
            ) from None
        path = self._checkpoint / "tokenizer.json"
        try:
            # only the text is read: what is not a file would be looked for on the internet
            return LLTokenizer(
                path.read_text(encoding="utf-8"),
                n_vocab=self._vocab_size,
                eos_token=self._end_tokens() or None,
            )
        except (OSError, ValueError) as error:
            raise GrammarError(f"{path} is no tokenizer that schemas can use: {error}") from error

    def _end_tokens(self) -> list[int]:
        for name in ("generation_config.json", "config.json"):
            path = self._checkpoint / name
            if path.is_file():
                found = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id")
                if found is not None:
                    return found if isinstance(found, list) else [found]
        return []


class Grammar:
    """What may follow the tokens of one answer."""

    def __init__(self, matcher: "LLMatcher") -> None:
        self._matcher = matcher

    @property
    def is_complete(self) -> bool:
        """Whether nothing but the end may follow."""
        return self._matcher.is_stopped()

    def allowed(self, logits_V: Tensor) -> Tensor:
        """A copy of `logits_V` with -inf at every token that must not come. Raises GrammarError."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        self._check()
        allowed_V = np.unpackbits(bits, bitorder="little", count=len(logits_V)).astype(bool)
        mask_V = torch.from_numpy(~allowed_V).to(logits_V.device)
        return logits_V.masked_fill(mask_V, -torch.inf)

    def accept(self, token_id: int) -> None:
        """The answer goes on with `token_id`. Raises GrammarError when it must not."""
        self._matcher.consume_token(token_id)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise GrammarError(f"an answer left its schema: {self._matcher.get_error()}")
