"""Who gets pages: requests by reservation of their whole prompt, decodes before the youngest."""

import hashlib
import logging
from collections.abc import Sequence as Items
from dataclasses import replace

from runtime.engine.pages import BlockName, KvCacheManager, NoFreePages
from runtime.engine.running_requests import RunningRequests
from runtime.engine.sequence import Sequence
from runtime.engine.shares import Shares
from runtime.protocol.data import DIGEST_BYTES, Hop, Reason
from runtime.protocol.engine_options import PrefixRule

logger = logging.getLogger(__name__)

_TOKEN_BYTES = 4


class Admission:
    """Owns which requests get pages; the stage's intake asks it.

    Reserves and shares pages of `kv_manager` for the sequences of one stage.

    `running_requests` are the requests that hold pages now; `shares` says what of the pages is kept
    from one coordinator for another.
    """

    def __init__(
        self,
        kv_manager: KvCacheManager,
        *,
        prefixes: PrefixRule,
        running_requests: RunningRequests,
        shares: Shares,
    ) -> None:
        self._kv_manager = kv_manager
        self._prefixes = prefixes
        self._running_requests = running_requests
        self._shares = shares
        self.prefix_tokens_total = 0

    def admit(self, sequence: Sequence, *, position: int, token_ids: memoryview | None) -> Reason:
        """Reserve the pages of a new sequence's prompt, or say why not, and then hold none.

        `position`: where the rows that came begin; a first stage, which gets `token_ids` (int32,
        the whole prompt), finds by itself what it can leave out. The pages of `received` tokens
        are there already when this returns.
        """
        if token_ids is not None:
            reused = self._find_prefix(sequence, token_ids)
        else:
            # a position inside a block is no shared prefix: then rows before it are missing
            reused = position // self._kv_manager.page_tokens
            names = self._names_of(sequence)[:reused]
            if self._kv_manager.share(sequence.table, names) < reused:
                self._kv_manager.release(sequence.table)
                return Reason.PREFIX_GONE
        if not self._fits(sequence):
            self._kv_manager.release(sequence.table)
            return Reason.NO_KV_PAGES
        self._kv_manager.reserve(sequence.table, tokens=sequence.route.prompt_tokens)
        self._shares.admit(sequence)
        sequence.received = sequence.done = reused * self._kv_manager.page_tokens
        sequence.published = reused
        self.prefix_tokens_total += sequence.received
        return Reason.NONE

    def grow(self, sequence: Sequence, *, tokens: int) -> Sequence | None:
        """Room for the first `tokens` tokens of `sequence`; None when it is there.

        Else the sequence that must give way, the youngest: preempt it and ask again. It may be
        `sequence` itself.
        """
        try:
            self._kv_manager.reserve(sequence.table, tokens=tokens)
        except NoFreePages as error:
            logger.info("request %d: %s", sequence.key.request, error)
            return max(self._running_requests.by_key.values(), key=lambda other: other.arrival)
        return None

    def publish(self, sequence: Sequence) -> None:
        """Its whole blocks of the prompt that have been run may be shared from now on."""
        done = min(sequence.done, sequence.route.prompt_tokens) // self._kv_manager.page_tokens
        if done <= sequence.published:
            return
        names = self._names_of(sequence)
        for block in range(sequence.published, min(done, len(names))):
            self._kv_manager.publish(sequence.table, block=block, name=names[block])
        sequence.published = done

    def _find_prefix(self, sequence: Sequence, token_ids: memoryview) -> int:
        """Blocks of the prompt that are here already; its last token is always run, to sample."""
        route = sequence.route
        if self._prefixes is not PrefixRule.REUSE:
            sequence.route = replace(route, block_digests=())  # the salt names no block
            return 0
        page_tokens = self._kv_manager.page_tokens
        salt = route.block_digests[0] if route.block_digests else b""
        digests = block_digests(token_ids, page_tokens=page_tokens, hops=route.hops, salt=salt)
        sequence.route = replace(route, block_digests=digests)
        if sequence.key.epoch > 0:
            return 0  # restarted, perhaps because a later stage did not have the prefix
        most = (route.prompt_tokens - 1) // page_tokens
        return self._kv_manager.share(sequence.table, self._names_of(sequence)[:most])

    def _fits(self, sequence: Sequence) -> bool:
        """Whether the prompt has room, and every resident can grow by a block beside it."""
        layers = sequence.end - sequence.first
        blocks = -(-sequence.route.prompt_tokens // self._kv_manager.page_tokens)
        wanted = (blocks - sequence.table.blocks) * layers
        room = self._kv_manager.available - self._shares.kept_from(sequence)
        if wanted + self._running_requests.layers <= room:
            return True
        self._shares.refuse(sequence, pages=wanted, total=self._kv_manager.total)
        return False

    def _names_of(self, sequence: Sequence) -> list[BlockName]:
        first, end = sequence.first, sequence.end
        digests = sequence.route.block_digests
        return [BlockName(digest=digest, first=first, end=end) for digest in digests]


def block_digests(
    token_ids: memoryview, *, page_tokens: int, hops: Items[Hop], salt: bytes
) -> tuple[bytes, ...]:
    """Names for the whole blocks of a prompt (int32 little-endian ids), by which another request
    finds them again.

    A digest covers every token up to the end of its block and the whole route: only a request that
    takes the same way finds the same names, so what its first stage has, the later stages computed
    too. It is salted by the request's API key: how fast an answer comes shows no key what another
    has sent. `salt`: at most `DIGEST_BYTES`; requests with another share no names.
    """
    way = "/".join(f"{hop.node}[{hop.first},{hop.end})" for hop in hops)
    running = hashlib.blake2b(way.encode(), digest_size=DIGEST_BYTES, salt=salt)
    digests = []
    block_bytes = page_tokens * _TOKEN_BYTES
    for start in range(0, len(token_ids) - block_bytes + 1, block_bytes):
        running.update(token_ids[start : start + block_bytes])
        digests.append(running.digest())
    return tuple(digests)
