"""CURVE key pairs: one per process that sends or receives data frames."""

from dataclasses import dataclass, field
from pathlib import Path

import zmq

from runtime.protocol.complaints import StartRefused
from runtime.whole_file import write_whole


class KeyFileError(StartRefused, ValueError):
    """A key file that does not hold a CURVE secret key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """Both keys as z85 text of 40 characters."""

    public_key: str
    secret_key: str = field(repr=False)

    @classmethod
    def generate(cls) -> "KeyPair":
        public, secret = zmq.curve_keypair()
        return cls(public_key=public.decode(), secret_key=secret.decode())

    @classmethod
    def from_secret(cls, secret: str) -> "KeyPair":
        """Raises KeyFileError when `secret` is no z85 key."""
        try:
            public = zmq.curve_public(secret.encode())
        except (ValueError, zmq.ZMQError) as error:
            raise KeyFileError(f"not a CURVE secret key of 40 z85 characters: {error}") from error
        return cls(public_key=public.decode(), secret_key=secret)

    @classmethod
    def load(cls, path: Path) -> "KeyPair":
        """Read a secret key file. Raises KeyFileError naming the file."""
        try:
            return cls.from_secret(path.read_text().strip())
        except (OSError, UnicodeDecodeError, KeyFileError) as error:
            raise KeyFileError(
                f"{path} holds no usable key ({error}); delete it and join the machine again"
            ) from error

    @classmethod
    def load_or_create(cls, path: Path) -> "KeyPair":
        """The key kept in `path`, made with mode 0600 on first use."""
        if path.exists():
            return cls.load(path)
        keys = cls.generate()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, keys.secret_key.encode())
        return keys
