"""The coordinator of an emulated cluster: what it sends comes as late as its links say."""

import queue
from pathlib import Path

import pytest
from emulated_cluster import MODEL

from runtime.coordinator.main import main
from runtime.engine.emulated_link_queue import LinkQueue
from runtime.engine.emulated_links import EmulatedSending
from runtime.protocol.data import DType, Entry, Flag, Kind, Message
from runtime.protocol.emulation import EmulatedNetwork, EmulationRefused, read_network


class Stages:
    """Notes what came to whom."""

    def __init__(self) -> None:
        self.came: queue.Queue[tuple[str, Kind]] = queue.Queue()

    def send(self, peer: str, message: Message) -> None:
        self.came.put((peer, message.kind))

    def close(self) -> None:
        """Nothing is open."""


def prompt(n_tokens: int) -> Message:
    entry = Entry(request=1, epoch=0, position=0, n_tokens=n_tokens, hop=0, flags=Flag.PROMPT_END)
    return Message(
        kind=Kind.PROMPT,
        generation=1,
        entries=(entry,),
        dtype=DType.INT32,
        payload=bytes(4 * n_tokens),
    )


PATIENCE_S = 90.0
RELEASE = Message(
    kind=Kind.RELEASE,
    generation=1,
    entries=(Entry(request=1, epoch=0, position=0, n_tokens=0, hop=0),),
)


def network(*, bandwidth_bytes_per_s: float = 1000) -> EmulatedNetwork:
    """4 bytes a token (MODEL): 100 tokens take 0.4 s to `a`."""
    link = {"bandwidth_bytes_per_s": bandwidth_bytes_per_s, "latency_s": 0.05}
    return EmulatedNetwork.model_validate({"model": MODEL, "links": {"a": link}})


def test_what_is_sent_takes_what_its_link_takes() -> None:
    link = LinkQueue("a", network())
    link.push(prompt(100), now_s=0.0)
    assert link.advance(0.44) == []
    link.push(prompt(50), now_s=0.44)
    assert len(link.advance(0.46)) == 1
    assert link.advance(0.68) == []
    assert len(link.advance(0.70)) == 1


def test_what_a_slow_link_has_not_sent_yet_lets_no_other_wait() -> None:
    stages = Stages()
    sending = EmulatedSending(stages, network(bandwidth_bytes_per_s=1e-6))  # never, in a test
    try:
        sending.send("a", prompt(100))
        sending.send("b", prompt(100))  # a link without a delay: at once
        assert stages.came.get(timeout=PATIENCE_S) == ("b", Kind.PROMPT)
        assert stages.came.empty()
    finally:
        sending.close()


def test_a_release_overtakes_prompts_that_wait() -> None:
    link = LinkQueue("a", network())
    for message in (*(prompt(100) for _ in range(3)), RELEASE):
        link.push(message, now_s=0.0)
    assert [message.kind for message in link.advance(5.0)] == [
        Kind.PROMPT,
        Kind.RELEASE,
        Kind.PROMPT,
        Kind.PROMPT,
    ]


def test_a_file_that_describes_no_network_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "links.json"
    path.write_text('{"links": {}}')
    with pytest.raises(EmulationRefused, match=r"links\.json: model: Field required"):
        read_network(path)
    arguments = ["--server", "http://127.0.0.1:9", "--port", "0", "--emulate", str(path)]
    assert main([*arguments, "--data-dir", str(tmp_path / "data")]) == 2
    assert "links.json: model: Field required" in capsys.readouterr().err
