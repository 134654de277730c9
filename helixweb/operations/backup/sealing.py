"""Encryption of what a backup holds, by a passphrase: AES-256-GCM in pieces, the key by scrypt.

Each piece is bound to its member, its place and whether it is the last, so that nothing can be
moved, left out or cut off unseen.
"""

import hashlib
import hmac
import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from helixweb.command_line.failures import CommandFailed

PIECE_BYTES = 1 << 20
# A quarter of a second and 64 MiB on a small machine, for each guess.
SCRYPT_N, SCRYPT_R, SCRYPT_P = 1 << 16, 8, 1
_SCRYPT_MEMORY = 256 << 20
_LENGTH = struct.Struct("<I")
_MORE, _LAST = b"more", b"last"


class WrongPassphrase(CommandFailed):
    """The passphrase does not open this backup, or the backup was changed."""


class Seal:
    """Encryption with the key of a passphrase and the salt of one backup."""

    def __init__(self, passphrase: str, *, salt: bytes) -> None:
        self.salt = salt
        self._key = hashlib.scrypt(
            passphrase.encode(),
            salt=salt,
            n=SCRYPT_N,
            r=SCRYPT_R,
            p=SCRYPT_P,
            maxmem=_SCRYPT_MEMORY,
            dklen=32,
        )

    @classmethod
    def fresh(cls, passphrase: str) -> "Seal":
        """A seal with a new salt."""
        return cls(passphrase, salt=os.urandom(16))

    def mark(self, content: bytes) -> str:
        """A MAC of `content`, which requires the passphrase."""
        return hmac.new(self._derived("manifest"), content, hashlib.sha256).hexdigest()

    def check_mark(self, content: bytes, mark: str) -> None:
        """Raises WrongPassphrase."""
        if not hmac.compare_digest(self.mark(content), mark):
            raise WrongPassphrase("the passphrase does not open this backup, or it was changed")

    def sealed(self, pieces: Iterable[bytes], *, member: str) -> Iterator[bytes]:
        """The content of a member, compressed and encrypted."""
        cipher, waiting, number = AESGCM(self._derived(member)), bytearray(), 0

        def sealed(mark: bytes) -> bytes:
            encrypted = cipher.encrypt(_nonce(number), bytes(waiting[:PIECE_BYTES]), mark)
            return _LENGTH.pack(len(encrypted)) + mark + encrypted

        for compressed in _compressed(pieces):
            waiting += compressed
            while len(waiting) > PIECE_BYTES:
                yield sealed(_MORE)
                del waiting[:PIECE_BYTES]
                number += 1
        yield sealed(_LAST)

    def pieces(self, source: BinaryIO, *, member: str) -> Iterator[bytes]:
        """The decrypted content, in pieces. Raises WrongPassphrase."""
        cipher, inflate = AESGCM(self._derived(member)), zlib.decompressobj()
        number, mark = 0, _MORE
        while header := source.read(_LENGTH.size + 4):
            if len(header) != _LENGTH.size + 4:
                raise WrongPassphrase(f"{member} is cut off")
            (size,), mark = _LENGTH.unpack(header[: _LENGTH.size]), header[_LENGTH.size :]
            try:
                sealed = source.read(size)
                yield inflate.decompress(cipher.decrypt(_nonce(number), sealed, mark))
            except InvalidTag as error:
                raise WrongPassphrase(f"{member} cannot be opened: it was changed") from error
            number += 1
        if mark != _LAST:
            raise WrongPassphrase(f"{member} is cut off")
        yield inflate.flush()

    def _derived(self, purpose: str) -> bytes:
        """A key for one purpose alone."""
        return hmac.new(self._key, purpose.encode(), hashlib.sha256).digest()


def _compressed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    deflate = zlib.compressobj(6)
    for piece in pieces:
        yield deflate.compress(piece)
    yield deflate.flush()


def _nonce(number: int) -> bytes:
    return number.to_bytes(12, "little")  # the key is of this member of this backup alone
