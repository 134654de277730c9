"""One message that cannot be acted on does not end the service for all others."""

import asyncio
from collections.abc import Sequence
from operator import attrgetter

import pytest

from runtime.coordinator import message_loops
from runtime.coordinator.message_loops import act_forever, each_second
from runtime.protocol.data import Kind, Message
from runtime.transport.base import Received
from runtime.transport.heartbeats import PeerEvent

SENDERS = ("a", "bad", "b")


class Mail:
    """Messages and news of all senders, once; then nothing for ever."""

    def __init__(self) -> None:
        self._is_read = False

    async def receive(self) -> Sequence[Received]:
        await self._once()
        message = Message(kind=Kind.NACK, generation=1)
        return [Received(sender=sender, message=message) for sender in SENDERS]

    async def peer_events(self) -> Sequence[PeerEvent]:
        await self._once()
        return [PeerEvent(peer=sender, loss=None, silent_s=0.0) for sender in SENDERS]

    async def _once(self) -> None:
        if self._is_read:
            await asyncio.Event().wait()
        self._is_read = True


class Picky:
    """A dispatcher with a fault: nothing of one sender can be acted on."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.has_heard_all = asyncio.Event()

    def receive(self, received: Received) -> None:
        self._hear(received.sender)

    def see(self, peer_event: PeerEvent) -> None:
        self._hear(peer_event.peer)

    def _hear(self, sender: str) -> None:
        if sender == "bad":
            raise LookupError(sender)
        self.heard.append(sender)
        if sender == SENDERS[-1]:
            self.has_heard_all.set()


@pytest.mark.parametrize("kind", ["messages", "events of peers"])
def test_what_cannot_be_acted_on_is_logged_and_left_out(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        mail, picky = Mail(), Picky()
        loop = (
            act_forever(mail.receive, picky.receive, peer_of=attrgetter("sender"))
            if kind == "messages"
            else act_forever(mail.peer_events, picky.see, peer_of=attrgetter("peer"))
        )
        running = asyncio.create_task(loop)
        heard = asyncio.create_task(picky.has_heard_all.wait())
        await asyncio.wait({running, heard}, return_when=asyncio.FIRST_COMPLETED)
        assert picky.heard == ["a", "b"]
        assert not running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run())
    assert "of 'bad' could not be acted on" in caplog.text


def test_what_expires_badly_is_logged_and_the_next_second_comes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(message_loops, "TICK_S", 0.0)
    ticks = 0

    async def run() -> None:
        has_gone_on = asyncio.Event()

        def expire(_: str) -> None:
            nonlocal ticks
            ticks += 1
            if ticks == 1:
                raise LookupError("the first")
            has_gone_on.set()

        running = asyncio.create_task(act_forever(each_second, expire, peer_of=str))
        going_on = asyncio.create_task(has_gone_on.wait())
        await asyncio.wait({running, going_on}, return_when=asyncio.FIRST_COMPLETED)
        assert going_on.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run())
    assert "what came of 'the clock' could not be acted on" in caplog.text


def test_answers_go_on_while_there_is_always_another_message() -> None:
    calls = 0

    async def run() -> None:
        answered = asyncio.Event()

        async def receive() -> Sequence[Received]:
            nonlocal calls
            calls += 1
            if calls > 100:
                raise RuntimeError("nothing else got a turn")
            return [Received(sender="a", message=Message(kind=Kind.NACK, generation=1))]

        async def answer() -> None:
            answered.set()

        def act(_: Received) -> None:
            if calls == 1:
                answering.append(asyncio.create_task(answer()))

        answering: list[asyncio.Task[None]] = []
        running = asyncio.create_task(act_forever(receive, act, peer_of=attrgetter("sender")))
        waiting = asyncio.create_task(answered.wait())
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        running.cancel()
        outcome, _ = await asyncio.gather(running, waiting, return_exceptions=True)
        assert isinstance(outcome, asyncio.CancelledError)

    asyncio.run(run())
    assert calls < 5
