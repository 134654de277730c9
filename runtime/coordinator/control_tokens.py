"""Tells control tokens that a chat template writes from text that only looks like them.

A control token is an added token that is special, or that the chat template writes around messages
(some checkpoints mark `<|User|>` as ordinary). In a client's text it must be ordinary text, or the
text of a user could close a turn and open one of the system.
"""

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_NO_CHARACTER = "\U0010ffff"  # what a tokenizer makes of it stands for all unknown text


class ControlTokens:
    """Encodes prompts for a tokenizer so that text of clients makes no control tokens.

    Encodes text whose control tokens are genuine, except where `shield` hid them.

    The tokenizer matches no control token by its own text. It has a second, secret name for each;
    `encode` writes these names where the template wrote the token.
    """

    def __init__(
        self, tokenizer: "Tokenizer", *, written: str, markers: frozenset[str] = frozenset()
    ) -> None:
        """`written`: what the chat template writes around messages; empty without a template.
        `markers`: those that divide the model's message, which `decode_marked` shows."""
        from tokenizers import AddedToken

        controls = {
            token_id: token
            for token_id, token in tokenizer.get_added_tokens_decoder().items()
            if token.special or (token.content.strip() and token.content in written)
        }
        if not all(token.special for token in controls.values()):
            tokenizer = _with_special(tokenizer, controls.keys())
        tokenizer.encode_special_tokens = True  # as text, without being matched
        names = {token.content: _secret() for token in controls.values()}
        tokenizer.add_tokens(
            [
                AddedToken(
                    names[token.content],
                    single_word=token.single_word,
                    lstrip=token.lstrip,
                    rstrip=token.rstrip,
                    normalized=token.normalized,
                )
                for token in controls.values()
            ]
        )
        self._tokenizer = tokenizer
        self._names = names
        self._texts = {token_id: token.content for token_id, token in controls.items()}
        self._ids = {
            tokenizer.token_to_id(names[text]): token_id for token_id, text in self._texts.items()
        }
        self._unmarked = frozenset(
            token_id for token_id, text in self._texts.items() if text not in markers
        )
        longest_first = sorted(names, key=len, reverse=True)
        self._genuine = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        # digits: nothing that a template does to text (case, trimming, JSON) changes them
        mark = _secret()  # shared, so that texts of digits are searched as fast as others
        self._hidden = {text: f"{mark}{number:06d}" for number, text in enumerate(names)}
        self._shown = {hidden: text for text, hidden in self._hidden.items()}
        self._placeholder = re.compile("|".join(self._shown) or "(?!)")
        unknown = tokenizer.encode(_NO_CHARACTER, add_special_tokens=False).ids
        self._never_spoken = frozenset(self._texts).difference(unknown)

    def shield(self, value: Any) -> Any:
        """A copy of `value`, a client's JSON data; its control tokens are hidden until `encode`."""
        if isinstance(value, str):
            return self._genuine.sub(lambda found: self._hidden[found[0]], value)
        if isinstance(value, Mapping):
            return {self.shield(key): self.shield(each) for key, each in value.items()}
        if isinstance(value, Sequence):
            return [self.shield(each) for each in value]
        return value

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Token ids of `text`, in which what was shielded is ordinary text."""
        text = self._genuine.sub(lambda found: self._names[found[0]], text)
        text = self._placeholder.sub(lambda found: self._shown[found[0]], text)
        token_ids = self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        if not add_special_tokens and not self._never_spoken.isdisjoint(token_ids):
            token_ids = [part for token_id in token_ids for part in self._as_text(token_id)]
        return [self._ids.get(token_id, token_id) for token_id in token_ids]

    def decode(self, token_ids: Sequence[int], *, skip_control: bool) -> str:
        """Text; U+FFFD where bytes are not UTF-8."""
        text: str = self._tokenizer.decode(list(token_ids), skip_special_tokens=skip_control)
        return text

    def decode_marked(self, token_ids: Sequence[int]) -> str:
        """Text with the markers of a message, but no other control token."""
        shown = [token_id for token_id in token_ids if token_id not in self._unmarked]
        text: str = self._tokenizer.decode(shown, skip_special_tokens=False)
        return text

    def _as_text(self, token_id: int) -> list[int]:
        """Some models' vocabularies hold control tokens as words: these are spelled."""
        if token_id not in self._never_spoken:
            return [token_id]
        spelled = [
            part
            for character in self._texts[token_id]
            for part in self._tokenizer.encode(character, add_special_tokens=False).ids
        ]
        return [part for part in spelled if part not in self._never_spoken]


def _secret() -> str:
    """39 digits that no client can guess."""
    return f"{secrets.randbits(128):039d}"


def _with_special(tokenizer: "Tokenizer", token_ids: Any) -> "Tokenizer":
    """A copy of `tokenizer` to which these added tokens are special."""
    from tokenizers import Tokenizer

    raw = json.loads(tokenizer.to_str())
    for token in raw["added_tokens"]:
        token["special"] = token["special"] or token["id"] in token_ids
    return Tokenizer.from_str(json.dumps(raw))
