"""Salts that keep the prefix caches of API keys apart.

A prompt whose beginning is cached is answered sooner, so a shared cache would show each key what
others have sent.
"""

import hashlib

from runtime.protocol.data import DIGEST_BYTES


def prefix_salt(owner: str, cache_salt: str = "") -> bytes:
    """`DIGEST_BYTES` for the API key with the hash `owner`; empty without a key or a salt.

    `cache_salt` is what the client sent to divide the cache of its key further.
    """
    if not owner and not cache_salt:
        return b""
    text = f"{owner}:{cache_salt}" if cache_salt else owner
    digest = hashlib.blake2b(
        text.encode(errors="surrogatepass"), digest_size=DIGEST_BYTES, person=b"prefixes"
    )
    return digest.digest()
