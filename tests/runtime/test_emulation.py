"""Emulated nodes: times and links of a profile, everything else as with a model."""

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from emulated_cluster import LAYERS, MODEL, TIMES, EmulatedCluster, emulation_of
from in_memory_network import InMemoryNetwork
from pydantic import ValidationError

from planner.domain.node_memory import EndRoom, NodeMemory
from runtime.engine.emulated_link_queue import LinkQueue, wire_bytes
from runtime.engine.emulated_links import EmulatedLinks
from runtime.engine.emulated_runner import EmulatedRunner, made_up_token, step_s
from runtime.engine.sequence import Chunk, RequestKey, Sequence, Work
from runtime.protocol.data import DType, Entry, Flag, Hop, Kind, Message, Route, Sampling
from runtime.protocol.emulation import Emulation, EmulationRefused, read_emulation
from runtime.protocol.engine_options import EngineOptions

SAMPLING = Sampling(temperature=1.0, top_p=1.0, top_k=0, seed=7, max_tokens=9)
PATIENCE_S = 90.0


def work(*, first: int, end: int, position: int, n_tokens: int, hop: int = 0) -> Work:
    """A chunk of a request with a prompt of 10 tokens."""
    hops = (Hop(node="x", first=0, end=first), Hop(node="a", first=first, end=end))
    route = Route(hops=hops[1 - hop :], sampling=SAMPLING, prompt_tokens=10)
    chunk = Chunk(
        position=position, n_tokens=n_tokens, payload=memoryview(b""), is_sampled=True, arrival=0
    )
    sequence = Sequence(
        key=RequestKey(request=position, epoch=0), generation=1, route=route, hop=hop, arrival=0
    )
    return Work(sequence=sequence, chunk=chunk)


def prompt(n_tokens: int, **place: int) -> Work:
    return work(**{"first": 0, "end": 4, "position": 0, "n_tokens": n_tokens, **place})


def decode(**place: int) -> Work:
    return work(**{"first": 0, "end": 4, "position": 12, "n_tokens": 1, **place})


def test_a_step_takes_what_the_tables_say_for_each_layer() -> None:
    emulation = emulation_of()
    assert step_s([prompt(10)], emulation) == pytest.approx(4 * 0.1)
    assert step_s([decode(), decode(), decode(), decode()], emulation) == pytest.approx(4 * 0.02)
    mixed = [prompt(10), prompt(5), decode(), decode(), decode(), decode()]
    assert step_s(mixed, emulation) == pytest.approx(4 * (0.125 + 0.02))


def test_one_decode_costs_what_two_cost_unless_it_was_measured_and_a_tiny_chunk_no_less() -> None:
    one, two = 4 * 0.01, 4 * (0.01 + (0.02 - 0.01) / 3)
    measured = emulation_of()
    assert step_s([decode()], measured) == pytest.approx(one)
    assert step_s([decode(), decode()], measured) == pytest.approx(two)
    assert step_s([prompt(1)], measured) == pytest.approx(one)
    published = emulation_of(times=replace(TIMES, decode=((2, two / 4), (4, 0.02))))
    assert step_s([decode()], published) == pytest.approx(two)
    assert step_s([decode(), decode()], published) == pytest.approx(two)
    assert step_s([prompt(1)], published) == pytest.approx(two)


def test_a_step_takes_its_own_time_once_and_that_of_the_head_where_tokens_are_drawn() -> None:
    times = replace(
        TIMES, prompt_step_s=0.3, decode_step_s=0.2, head_s=0.05, handling_s=9.0, hop_s=9.0
    )
    plain, timed = emulation_of(), emulation_of(times=times)

    def more_s(*step: Work) -> float:
        return step_s(list(step), timed) - step_s(list(step), plain)

    assert more_s(decode()) == pytest.approx(0.2 + 0.05)
    assert more_s(prompt(5)) == pytest.approx(0.3 + 0.05)
    assert more_s(prompt(5), decode()) == pytest.approx(0.3 + 0.05)
    assert more_s(decode(hop=1, first=2, end=4)) == pytest.approx(0.2 + 0.05)
    assert more_s(replace(decode(), sequence=_passed_on())) == pytest.approx(0.2)


def _passed_on() -> Sequence:
    """A request whose rows go to another stage."""
    sequence = decode(hop=1, first=2, end=4).sequence
    hops = (*sequence.route.hops, Hop(node="b", first=4, end=8))
    sequence.route = replace(sequence.route, hops=hops)
    return sequence


def test_a_request_that_enters_late_costs_only_where_it_runs() -> None:
    emulation = emulation_of()
    late = decode(first=2, end=4, hop=1)
    alone = emulation.layer_times.decode_s(2)
    three = emulation.layer_times.decode_s(3)
    expected = 2 * alone + 2 * three
    assert step_s([decode(), decode(), late], emulation) == pytest.approx(expected)


def test_overhead_and_copies_of_what_arrived_are_added() -> None:
    plain = emulation_of()
    loaded = emulation_of(step_overhead_s=0.5, host_copy_s_per_byte=1e-4)
    arrived = prompt(10, first=4, end=8, hop=1)
    assert step_s([arrived], loaded) - step_s([arrived], plain) == pytest.approx(
        0.5 + 10 * 1000 * 1e-4
    )
    assert step_s([prompt(10)], loaded) - step_s([prompt(10)], plain) == pytest.approx(0.5)


def test_the_runner_sleeps_for_the_step_stretched_by_the_time_scale() -> None:
    slept: list[float] = []
    runner = EmulatedRunner(
        emulation_of(time_scale=3.0),
        first=0,
        end=4,
        page_tokens=4,
        clock=lambda: 5.0,
        sleep=slept.append,
    )
    end = runner.begin([prompt(10)])
    assert not slept
    end()
    assert slept == [pytest.approx(3 * 4 * 0.1)]


def test_tokens_depend_on_seed_and_position_alone_and_never_stop_an_answer() -> None:
    stopping = Sampling(
        temperature=1.0, top_p=1.0, top_k=0, seed=7, max_tokens=9, stop_token_ids=(0, 1, 2)
    )
    tokens = [made_up_token(stopping, position=position, vocab_size=4) for position in range(50)]
    assert tokens == [3] * 50
    free = [made_up_token(SAMPLING, position=position, vocab_size=300) for position in range(50)]
    assert len(set(free)) > 40
    assert free == [
        made_up_token(SAMPLING, position=position, vocab_size=300) for position in range(50)
    ]


def test_an_emulated_pipeline_answers_whole_and_says_that_it_is_emulated() -> None:
    cluster = EmulatedCluster({"a": (0, 3), "b": (3, LAYERS)}, options=EngineOptions())
    cluster.prompt(7, range(20), max_tokens=5, epoch=0)
    tokens: list[int] = []
    last = Flag.NONE
    for _ in range(50):
        for entry, token_id in cluster.turn():
            assert token_id is not None
            tokens.append(token_id)
            last = entry.flags
    assert tokens == [
        made_up_token(SAMPLING, position=position, vocab_size=300) for position in range(20, 25)
    ]
    assert Flag.FINISHED in last
    stats = cluster.stages["b"].stats()
    assert stats.emulated
    assert (stats.prompt_tokens_total, stats.decode_tokens_total) == (20, 4)
    one = emulation_of().layer_times.decode_s(1)
    assert cluster.slept_s["a"] == [pytest.approx(3 * 0.15)] + [pytest.approx(3 * one)] * 4


def message(n_tokens: int, flags: Flag = Flag.NONE, *, kind: Kind = Kind.ROWS) -> Message:
    entry = Entry(request=n_tokens, epoch=0, position=0, n_tokens=n_tokens, hop=1, flags=flags)
    return Message(kind=kind, generation=1, entries=(entry,), dtype=DType.FLOAT16)


def test_a_message_weighs_what_the_model_would_send() -> None:
    assert wire_bytes(message(3), MODEL) == 3 * MODEL.activation_bytes_per_token
    assert wire_bytes(message(1, kind=Kind.SAMPLED), MODEL) == MODEL.token_bytes
    assert wire_bytes(message(7, kind=Kind.PROMPT), MODEL) == 7 * MODEL.token_bytes
    assert wire_bytes(message(0, kind=Kind.NACK), MODEL) == 0
    assert message(3, Flag.PREFILL).is_prefill
    assert message(3, kind=Kind.PROMPT).is_prefill
    assert not message(3).is_prefill


def link(
    *, latency_s: float = 0.0, decode_first: bool = True, piece_s: float | None = None
) -> LinkQueue:
    """A row takes a second."""
    row_bytes = MODEL.activation_bytes_per_token
    network = emulation_of(
        links={"b": {"bandwidth_bytes_per_s": row_bytes, "latency_s": latency_s}},
        transmission="decode_first" if decode_first else "fifo",
        piece_bytes=None if piece_s is None else piece_s * row_bytes,
    )
    return LinkQueue("b", network)


def rows(n_tokens: int) -> Message:
    return message(n_tokens, Flag.PREFILL)


def arrivals(queue: LinkQueue, *moments: float) -> list[list[int]]:
    """Tokens of the messages that have arrived by each moment."""
    return [[sent.entries[0].n_tokens for sent in queue.advance(moment)] for moment in moments]


def test_a_link_transmits_one_message_after_another_and_then_they_fly() -> None:
    queue = link(latency_s=0.25)
    queue.push(rows(1), now_s=10.0)
    queue.push(rows(2), now_s=10.0)
    assert queue.next_s() == 11.0
    assert arrivals(queue, 11.0, 11.25, 13.2, 13.25) == [[], [1], [], [2]]
    assert queue.next_s() is None


def test_decodes_overtake_prompts_that_wait_but_without_pieces_not_the_one_under_way() -> None:
    queue = link()
    queue.push(rows(2), now_s=0.0)
    queue.push(rows(3), now_s=0.0)
    queue.push(message(1), now_s=0.5)
    assert arrivals(queue, 1.9, 2.0, 3.0, 5.9, 6.0) == [[], [2], [1], [], [3]]


def test_a_prompt_under_way_makes_room_for_decodes_at_the_end_of_a_piece() -> None:
    queue = link(piece_s=0.5)
    queue.push(rows(4), now_s=0.0)
    queue.push(message(1), now_s=1.25)
    assert queue.next_s() == 1.5
    queue.push(message(2), now_s=1.4)
    assert arrivals(queue, 2.4, 2.5, 4.5, 6.9, 7.0) == [[], [1], [2], [], [4]]
    queue.push(rows(1), now_s=10.0)
    queue.push(message(3), now_s=10.75)  # in its last piece
    assert arrivals(queue, 11.0, 14.0) == [[1], [3]]


def test_the_published_links_let_nothing_overtake() -> None:
    queue = link(decode_first=False, piece_s=0.5)
    queue.push(rows(2), now_s=0.0)
    queue.push(message(1), now_s=0.5)
    assert arrivals(queue, 2.0, 3.0) == [[2], [1]]


def test_the_time_scale_stretches_transmission_latency_and_pieces() -> None:
    links = {"b": {"bandwidth_bytes_per_s": 1e3, "latency_s": 0.25}}
    queue = LinkQueue("b", emulation_of(links=links, time_scale=2.0, piece_bytes=500.0))
    queue.push(rows(2), now_s=0.0)
    queue.push(message(1), now_s=0.1)
    assert queue.next_s() == 1.0
    assert arrivals(queue, 3.4, 3.5, 6.4, 6.5) == [[], [1], [], [2]]
    at_once = LinkQueue("c", emulation_of(links=links))
    at_once.push(rows(2), now_s=0.0)
    assert arrivals(at_once, 1e-9) == [[2]]


def test_links_delay_what_is_sent_and_keep_its_order() -> None:
    network = InMemoryNetwork()
    receiver = network.join("b")
    links = {"b": {"bandwidth_bytes_per_s": 1e6, "latency_s": 0.01}}
    sender = EmulatedLinks(network.join("a"), emulation_of(links=links))
    try:
        for n_tokens in range(1, 6):
            sender.send("b", message_with_rows(n_tokens))
        heard: list[int] = []
        while len(heard) < 5:
            heard += [
                received.message.entries[0].n_tokens
                for received in receiver.receive(timeout_s=PATIENCE_S)
            ]
        assert heard == [1, 2, 3, 4, 5]
    finally:
        sender.close()


def message_with_rows(n_tokens: int) -> Message:
    sent = message(n_tokens)
    return Message(
        kind=sent.kind,
        generation=1,
        entries=sent.entries,
        dtype=DType.FLOAT16,
        payload=bytes(2 * n_tokens),
    )


def test_what_cannot_be_sent_is_logged_and_all_else_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    network = InMemoryNetwork()
    receiver = network.join("b")
    sender = EmulatedLinks(network.join("a"), emulation_of())
    try:
        sender.send("nobody", message(1))
        sender.send("b", replace(message(1), generation=2**32))
        sender.send("b", message_with_rows(1))
        assert len(receiver.receive(timeout_s=PATIENCE_S)) == 1
        assert "cannot send to nobody" in caplog.text
        assert "cannot send to b: a value does not fit its field" in caplog.text
    finally:
        sender.close()
    assert not any(thread.name == "emulated-links" for thread in threading.enumerate())


def test_a_profile_without_layer_times_is_refused_by_name() -> None:
    without = json.loads(emulation_of().model_dump_json())
    without["profile"]["layer_times"] = None
    with pytest.raises(ValidationError, match="'T4' has no layer_times"):
        Emulation.model_validate(without)


def test_a_file_is_read_as_it_was_written_and_a_wrong_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "node.json"
    path.write_text(emulation_of().model_dump_json())
    assert read_emulation(path) == emulation_of()
    path.write_text(path.read_text().replace('"vocab_size":300', '"vocab_size":1'))
    with pytest.raises(EmulationRefused, match=r"node\.json: vocab_size: "):
        read_emulation(path)
    with pytest.raises(EmulationRefused, match="cannot be read"):
        read_emulation(tmp_path / "nothing.json")


def test_the_ends_of_the_model_leave_an_emulated_node_less_room() -> None:
    plain = emulation_of()
    room = EndRoom(max_layers=3, kv_token_layers_less=400.0)
    memory = NodeMemory(first=room, last=room, both=EndRoom(max_layers=0))
    emulation = plain.model_copy(update={"profile": replace(plain.profile, memory=memory)})
    pages = {first: emulation.pages(range(first, first + 3), page_tokens=4) for first in (0, 1)}
    assert pages[1] == plain.pages(range(1, 4), page_tokens=4)
    assert pages[0] == pages[1] - 100
    with pytest.raises(EmulationRefused, match=r"4 layers are assigned.*at most 3 there"):
        emulation.pages(range(4), page_tokens=4)


def test_more_layers_than_the_profile_holds_are_refused() -> None:
    with pytest.raises(EmulationRefused, match=r"9 layers are assigned.*at most 8"):
        EmulatedRunner(emulation_of(), first=0, end=9, page_tokens=4)
