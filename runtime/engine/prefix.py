"""Names for the blocks of a prompt, so that another request may find them again.

A block's digest covers every token up to its end and the whole route: only a request that takes
the same way finds the same names, so what its first stage has, the later stages computed too. It is
salted by the request's API key: how fast an answer comes shows no key what another has sent.
"""

import hashlib
from collections.abc import Sequence

from runtime.protocol.data import DIGEST_BYTES, Hop

_TOKEN_BYTES = 4


def block_digests(
    token_ids: memoryview, *, page_tokens: int, hops: Sequence[Hop], salt: bytes
) -> tuple[bytes, ...]:
    """One digest per whole block of a prompt (int32 little-endian ids), each over all before it.

    `salt`: at most `DIGEST_BYTES`; requests with another share no names.
    """
    way = "/".join(f"{hop.node}[{hop.first},{hop.end})" for hop in hops)
    running = hashlib.blake2b(way.encode(), digest_size=DIGEST_BYTES, salt=salt)
    digests = []
    block_bytes = page_tokens * _TOKEN_BYTES
    for start in range(0, len(token_ids) - block_bytes + 1, block_bytes):
        running.update(token_ids[start : start + block_bytes])
        digests.append(running.digest())
    return tuple(digests)
