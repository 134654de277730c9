"""Keeps answers within a JSON schema: which tokens may come next, and when the answer is whole.

Uses llguidance, which is optional (extra `grammar`).
"""

import threading
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from runtime.checkpoints.errors import CheckpointError
from runtime.checkpoints.metadata import (
    CONFIG,
    GENERATION_CONFIG,
    TOKENIZER,
    read_object,
    read_text,
)
from runtime.protocol.grammars import matcher_of

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

_THREADS = 2  # the library lets go of the interpreter's lock, so that steps run meanwhile
_KEPT = 16  # matchers of schemas used last; one may have some dozen megabytes


class GrammarError(Exception):
    """This request's answer cannot be kept within its schema; the message says why."""


class GrammarUnavailable(GrammarError):
    """This node can follow no schema, whichever a request has."""


class Grammars:
    """Schemas over the vocabulary of one checkpoint, compiled in threads of their own.

    The tokenizer is read at the first use, the schemas used last stay compiled.
    """

    def __init__(self, checkpoint: Path, *, vocab_size: int) -> None:
        self._checkpoint = checkpoint
        self._vocab_size = vocab_size
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="grammars")
        self._matcher = lru_cache(_KEPT)(self._compile)
        self._reading = threading.Lock()  # of the tokenizer

    def begin(self, schema: str, *, emitted_ids: Iterable[int] = ()) -> "Future[Grammar]":
        """The state of an answer that begins with `emitted_ids`, once it is compiled; its result
        raises GrammarError."""
        return self._threads.submit(self._follow, schema, tuple(emitted_ids))

    def _follow(self, schema: str, emitted_ids: tuple[int, ...]) -> "Grammar":
        grammar = Grammar(self._matcher(schema).deep_copy())
        for token_id in emitted_ids:
            grammar.accept(token_id)
        return grammar

    def _compile(self, schema: str) -> "LLMatcher":
        with self._reading:
            tokenizer = self._tokenizer
        try:
            return matcher_of(schema, tokenizer)
        except ValueError as error:
            raise GrammarError(f"a JSON schema cannot be followed: {error}") from error

    @cached_property
    def _tokenizer(self) -> "LLTokenizer":
        try:
            from llguidance import LLTokenizer
        except ImportError:
            raise GrammarUnavailable(
                "llguidance is not installed on this node; pip install 'helixweb[grammar]'"
            ) from None
        try:
            text = read_text(self._checkpoint, TOKENIZER)
            if text is None:
                raise GrammarUnavailable(
                    f"{self._checkpoint / TOKENIZER} does not exist; schemas need it"
                )
            # only the text is read: what is not a file would be looked for on the internet
            return LLTokenizer(text, n_vocab=self._vocab_size, eos_token=self._end_tokens() or None)
        except (OSError, ValueError, CheckpointError) as error:
            raise GrammarUnavailable(
                f"{self._checkpoint / TOKENIZER} is no tokenizer that schemas can use: {error}"
            ) from error

    def _end_tokens(self) -> list[int]:
        for name in (GENERATION_CONFIG, CONFIG):
            found = (read_object(self._checkpoint, name) or {}).get("eos_token_id")
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

    def allowed(self) -> NDArray[np.uint8]:
        """One bit per token of the vocabulary, the lowest of a byte first, set if it may come next.

        Raises GrammarError.
        """
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        self._check()
        return bits

    def accept(self, token_id: int) -> None:
        """The answer goes on with `token_id`. Raises GrammarError when it must not."""
        self._matcher.consume_token(token_id)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise GrammarError(f"an answer left its schema: {self._matcher.get_error()}")
