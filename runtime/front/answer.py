"""The answer of one request: from the first instance that begins to give it.

What fails before the first token is asked of one other instance, unseen by the client; if that says
too that it failed, the request is taken for the reason, and no instance rests for it. What is too
long for one instance is asked of the others: their contexts may be larger. After the first token
the stream ends with an error event: another engine would go on with other words. While no instance
is open a request waits for one that is expected soon; while models load it is refused at once.
"""

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.types import Receive, Scope, Send

from planner.routers.answer_length import AnswerLength
from planner.routers.base import RequestSize
from runtime.api.client_stream import ClientStream
from runtime.api.events import usage_of
from runtime.disconnect import unless_disconnected
from runtime.front.asked import Asked, TokenLengths
from runtime.front.balance import Balance, Waiter
from runtime.front.ledger import Ledger
from runtime.front.refusals import (
    INSTANCE_HEADER,
    RETRY_AFTER_S,
    Lateness,
    all_full,
    broken,
    none_ready,
    stopping,
    too_slow,
)
from runtime.front.target import (
    Errored,
    InstanceFailed,
    InstanceFull,
    Refused,
    Target,
    TooSlow,
    Unfit,
    Unreachable,
)
from runtime.protocol.openai import ApiError
from runtime.tasks import within

ErrorT = TypeVar("ErrorT", bound=Exception)
MOST_OPENING_EVENTS = 1000  # kept until the first token
MOST_FAILURES = 2  # of one request; what ends engines must not go round all of them
_LOOK_AGAIN_S = 10.0  # whether waiting for an instance is still of use

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """How long a request waits at most: `instance_s` for an instance that is open, `answer_s` for a
    place at one and for an answer that does not stream, `token_s` for the next token of one that
    does."""

    instance_s: float = 30.0
    answer_s: float = 900.0
    token_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """What all answers share; `targets` by the names of instances. `clock`: by which tokens of a
    stream are late."""

    model_name: str
    targets: dict[str, Target]
    balance: Balance
    lengths: AnswerLength
    waits: Waits
    tokens: TokenLengths = field(default_factory=TokenLengths)
    ledger: Ledger = field(default_factory=Ledger)
    clock: Callable[[], float] = time.monotonic


class _Attempts(dict[str, InstanceFailed | InstanceFull | Unfit]):
    """Why instances did not answer, by their names, in the order in which they were asked."""

    def of(self, kind: type[ErrorT]) -> dict[str, ErrorT]:
        return {name: error for name, error in self.items() if isinstance(error, kind)}

    @property
    def asked(self) -> list[str]:
        """Those that got the request; the others could not be reached."""
        return [name for name, error in self.items() if not isinstance(error, Unreachable)]

    @property
    def failures(self) -> int:
        return len(self.of(InstanceFailed)) - len(self.of(Unreachable))

    @property
    def refusal(self) -> tuple[str, Unfit] | None:
        """That of the last one that cannot answer it, if nothing else was wrong."""
        unfit = self.of(Unfit)
        return next(reversed(unfit.items()), None) if len(unfit) == len(self.asked) else None


class Answer:
    """An ASGI response to `asked`, the `request`th of its backend."""

    def __init__(self, asked: Asked, *, request: int, proxy: Proxy) -> None:
        self._asked = asked
        self._request = request
        self._proxy = proxy
        self._attempts = _Attempts()
        self._name: str | None = None  # of the instance that has the request
        self._passed_on: dict[str, str] = {}  # its headers
        self._came_s = 0.0
        self._has_failed = False
        self._has_tokens = False  # the client got some

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._came_s = asyncio.get_running_loop().time()
        ledger = self._proxy.ledger
        ledger.arrived(self._request, asker=self._asked.asker)
        client, cut = ClientStream(scope, send), self._proxy.balance.cut
        keeping = [client.keep_alive(self._headers)] if self._asked.stream else []
        try:
            with self._proxy.balance.visit(self._asked.asker):
                await unless_disconnected(self._answer(client), receive, cut.wait(), *keeping)
                if cut.is_set() and not client.is_ended:
                    await unless_disconnected(client.fail(stopping()), receive)
        finally:
            ledger.gone(self._request, failed=self._has_failed)

    async def _answer(self, client: ClientStream) -> None:
        """From the first instance that begins to give it."""
        balance, attempts = self._proxy.balance, self._attempts
        while (name := await self._next_instance()) is not None:
            self._name, body = name, None
            try:
                if self._asked.stream:
                    await self._relay(name, client)
                else:
                    body = await self._whole(name)
            except (InstanceFailed, InstanceFull) as error:
                self._note(name, error)
                if not self._has_tokens:
                    continue
                balance.failed(name, str(error))
                self._has_failed = True
                await client.fail(broken(name, error))
            except Unfit as refusal:
                attempts[name] = refusal
                continue
            except Refused as refusal:
                await _refuse(client, refusal, name)
            except TooSlow as error:
                await client.fail(too_slow(name, error))
            finally:
                balance.end(self._request)
            if body is not None:
                await client.respond(body, self._headers())
            return
        if attempts.refusal is None:
            await client.fail(self._why_none())
        else:
            name, unfit = attempts.refusal
            await _refuse(client, unfit, name)

    def _headers(self) -> dict[str, str]:
        named = {} if self._name is None else {INSTANCE_HEADER: self._name}
        return {**named, **self._passed_on}

    async def _whole(self, name: str) -> dict[str, Any]:
        """The answer of an instance to a request that does not stream."""
        proxy = self._proxy
        body = await proxy.targets[name].whole(
            self._asked, patience_s=proxy.waits.answer_s, passed_on=self._passed_on
        )
        self._began(name)
        usage = usage_of(body)
        proxy.balance.produced(name, 0 if usage is None else usage[1])
        self._observe(usage)
        if "model" in body:
            body["model"] = proxy.model_name
        return body

    async def _relay(self, name: str, client: ClientStream) -> None:
        """Until the end of the stream. What comes before the first token waits for it."""
        proxy, asked = self._proxy, self._asked
        opening: list[dict[str, Any]] = []
        tokens, usage = 0, None
        lateness = self._lateness()
        async with aclosing(proxy.targets[name].stream(asked, passed_on=self._passed_on)) as events:
            async for event in events:
                if event.tokens:
                    lateness.has_written()
                lateness.check()
                if event.is_comment:
                    continue
                if event.usage is not None:
                    usage = event.usage
                    if event.is_usage_alone and not asked.wants_usage:
                        continue
                if event.tokens:
                    tokens += event.tokens
                    proxy.balance.produced(name, event.tokens)
                    proxy.ledger.produced(self._request, event.tokens)
                opening += event.chunks(model=proxy.model_name)
                if len(opening) > MOST_OPENING_EVENTS:
                    raise InstanceFailed(
                        f"it sent {len(opening)} events without a token before its first one"
                    )
                if event.tokens or event.finished or event.is_done or self._has_tokens:
                    if not self._has_tokens:
                        self._began(name)
                    self._has_tokens = True
                    with lateness.waiting_for_client():
                        await client.open(self._headers())
                        await client.send(opening, is_last=event.is_done)
                    opening.clear()
        self._observe(usage or (0, tokens))

    def _lateness(self) -> Lateness:
        """The first token may be as late as a whole answer, the next as one that sends nothing."""
        waits = self._proxy.waits
        return Lateness(
            first_s=max(waits.answer_s, waits.token_s),
            next_s=waits.token_s,
            clock=self._proxy.clock,
        )

    async def _next_instance(self) -> str | None:
        """Of those that were not tried; it has the request until `Balance.end`.

        One that arrived somewhere in vain does not wait for those that rest: it may be why they
        do.
        """
        if self._attempts.failures >= MOST_FAILURES:
            self._doubt()
            return None
        size, turns = self._size(), self._proxy.balance.turns
        waiter = Waiter(id=self._request, owner=self._asked.asker, size=size)
        if self._attempts.asked:
            chosen = self._choose(size)
            if chosen is None:
                self._doubt()
            return chosen
        chosen = None if turns else self._choose(size)
        if chosen is not None:
            turns.pass_by(waiter, turns.turn_of(waiter))
            return chosen
        with turns.waiting(waiter):
            return await self._in_turn(waiter)

    async def _in_turn(self, waiter: Waiter) -> str | None:
        """As soon as one takes it whose turn it is; None if that takes too long."""
        balance, clock = self._proxy.balance, asyncio.get_running_loop().time
        while not balance.is_closed:
            waiter.called.clear()
            if balance.turns.is_first(waiter):
                chosen = self._choose(waiter.size)
                if chosen is not None:
                    balance.turns.let_in(waiter)
                    return chosen
            hold_s, answer_s = self._proxy.waits.instance_s, self._proxy.waits.answer_s
            if balance.open_instances():  # for a place
                left_s = self._came_s + max(hold_s, answer_s) - clock()
            else:
                left_s = self._came_s + hold_s - clock()
                left_s = min(left_s, balance.opens_within_s(hold_s))
            if left_s <= 0:
                return None
            await within(min(_LOOK_AGAIN_S, left_s), waiter.called.wait())
        return None

    def _size(self) -> RequestSize:
        proxy, asked = self._proxy, self._asked
        expected = proxy.lengths.predict(
            proxy.model_name, self._asked.asker, max_tokens=asked.max_tokens
        )
        return RequestSize(
            prompt_tokens=proxy.tokens.prompt_tokens(asked),
            predicted_output_tokens=expected * asked.choices,
        )

    def _choose(self, size: RequestSize) -> str | None:
        proxy = self._proxy
        chosen = proxy.balance.choose(self._request, size, without=self._attempts.asked)
        if chosen is not None:
            proxy.ledger.sent(self._request, chosen)
        return chosen

    def _note(self, name: str, error: InstanceFailed | InstanceFull) -> None:
        self._attempts[name] = error
        if isinstance(error, InstanceFull):
            return
        logger.warning("instance %s: %s", name, error)
        if not isinstance(error, Errored):
            self._proxy.balance.failed(name, str(error))

    def _began(self, name: str) -> None:
        """That one answers shows that the request was no reason for others to fail."""
        self._proxy.balance.began(name)
        for other, error in self._attempts.of(Errored).items():
            self._proxy.balance.failed(other, str(error))

    def _doubt(self) -> None:
        """No instance answers: those that said they failed, or the request, are at fault."""
        errored = self._attempts.of(Errored)
        if not errored:
            return
        content = json.dumps(self._asked.body, sort_keys=True).encode()
        digest = hashlib.sha256(content).digest()
        for name, error in errored.items():
            self._proxy.balance.errored(name, str(error), digest=digest)

    def _observe(self, usage: tuple[int, int] | None) -> None:
        """An answer ended well: its length is known, and perhaps its prompt's."""
        self._proxy.ledger.answered(self._request, usage)
        if usage is None:
            return
        prompt, output = usage
        self._proxy.tokens.observe(self._asked, prompt)
        if output > 0:
            per_choice = max(1, output // self._asked.choices)
            self._proxy.lengths.observe(self._proxy.model_name, self._asked.asker, per_choice)

    def _why_none(self) -> ApiError:
        """Why no instance answers."""
        self._has_failed = True
        attempts, balance = self._attempts, self._proxy.balance
        reasons = {name: str(error) for name, error in attempts.items()}
        if attempts.asked:
            words = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
            full = attempts.of(InstanceFull).values()
            if full and not attempts.failures:
                known = [one.retry_after_s for one in full if one.retry_after_s is not None]
                return all_full(words, retry_after_s=min(known, default=RETRY_AFTER_S))
            return ApiError(message=f"no instance could answer: {words}", code="instances_failed")
        if balance.is_closed:
            return stopping()
        if balance.open_instances() and not attempts:
            return all_full("none took it while it waited in line")
        states = {**balance.closed_words(), **reasons}
        return none_ready(states, opens_in_s=balance.opens_in_s)


async def _refuse(client: ClientStream, refusal: Refused, instance: str) -> None:
    await client.refuse(
        refusal.status,
        refusal.content,
        media_type=refusal.media_type,
        headers={INSTANCE_HEADER: instance},
    )
