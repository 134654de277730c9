from hypothesis import given
from hypothesis import strategies as st
from published_options import PUBLISHED

from runtime.engine.batcher import pick_step
from runtime.engine.sequence import Chunk, RequestKey, Sequence
from runtime.protocol.data import Hop, Route, Sampling
from runtime.protocol.engine_options import EngineOptions, StepOrder

OURS = EngineOptions()
GREEDY = Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=8)


CHAIN = (Hop(node="a", first=0, end=2), Hop(node="b", first=2, end=4))
ALONE = (Hop(node="a", first=0, end=4),)


def make_sequence(
    request: int, *, prompt_tokens: int, hop: int = 0, hops: tuple[Hop, ...] = CHAIN
) -> Sequence:
    route = Route(hops=hops, sampling=GREEDY, prompt_tokens=prompt_tokens)
    return Sequence(
        key=RequestKey(request=request, epoch=1),
        generation=1,
        route=route,
        hop=hop,
        arrival=request,
    )


def add_chunk(sequence: Sequence, n_tokens: int, *, arrival: int) -> None:
    sequence.append(
        Chunk(
            position=sequence.received,
            n_tokens=n_tokens,
            payload=memoryview(bytes(4 * n_tokens)),
            is_sampled=True,
            arrival=arrival,
        )
    )


def decoding(request: int, *, arrival: int) -> Sequence:
    sequence = make_sequence(request, prompt_tokens=3)
    sequence.received = 3
    add_chunk(sequence, 1, arrival=arrival)
    return sequence


def prefilling(
    request: int, *, n_tokens: int, hop: int = 0, hops: tuple[Hop, ...] = CHAIN
) -> Sequence:
    sequence = make_sequence(request, prompt_tokens=n_tokens, hop=hop, hops=hops)
    add_chunk(sequence, n_tokens, arrival=100 + request)
    return sequence


def picked(
    sequences: list[Sequence],
    *,
    budget: int,
    floor: int = 4,
    cap: int | None = None,
    options: EngineOptions = OURS,
) -> list[tuple[int, int]]:
    picks = pick_step(
        sequences,
        max_batch_tokens=budget,
        min_prefill_tokens=floor,
        decode_cap=cap,
        options=options,
    )
    return [(pick.sequence.key.request, pick.n_tokens) for pick in picks]


def test_decodes_go_first_in_order_of_arrival_then_the_oldest_prompt() -> None:
    sequences = [
        prefilling(1, n_tokens=20),
        decoding(2, arrival=9),
        decoding(3, arrival=8),
        prefilling(0, n_tokens=5),
    ]
    assert picked(sequences, budget=16) == [(3, 1), (2, 1), (0, 5), (1, 9)]


def test_the_first_stage_cuts_a_prompt_to_the_room_left() -> None:
    assert picked([prefilling(0, n_tokens=100)], budget=16) == [(0, 16)]


def test_prompts_that_no_other_stage_waits_for_take_twice_the_rows() -> None:
    decode = decoding(1, arrival=1)
    alone = [prefilling(request, n_tokens=16, hops=ALONE) for request in (2, 3, 4)]
    assert picked([decode, *alone], budget=16) == [(1, 1), (2, 16), (3, 16)]
    assert picked([decode, *alone], budget=16, floor=1) == [(1, 1), (2, 16), (3, 15)]
    assert picked([prefilling(2, n_tokens=100, hops=ALONE)], budget=16) == [(2, 32)]
    mixed = [decode, prefilling(2, n_tokens=20, hops=ALONE), prefilling(3, n_tokens=9)]
    assert picked(mixed, budget=16) == [(1, 1), (2, 20)]


def test_a_prompt_is_not_cut_for_a_few_tokens_that_decodes_leave_no_room_for() -> None:
    decodes = [decoding(request, arrival=request) for request in (1, 2, 3)]
    whole = [*decodes, prefilling(0, n_tokens=16), prefilling(9, n_tokens=1)]
    assert picked(whole, budget=16)[3:] == [(0, 16)]
    assert picked([*decodes, prefilling(0, n_tokens=17)], budget=16)[3:] == [(0, 13)]
    more = [decoding(request, arrival=request) for request in range(1, 5)]
    assert picked([*more, prefilling(0, n_tokens=16)], budget=16)[4:] == [(0, 12)]


def test_a_later_stage_takes_a_chunk_whole_and_never_lets_a_younger_one_pass() -> None:
    sequences = [
        prefilling(0, n_tokens=12, hop=1),
        prefilling(1, n_tokens=9, hop=1),
        prefilling(2, n_tokens=2, hop=1),
    ]
    assert picked(sequences, budget=16) == [(0, 12)]


def test_a_later_stage_with_smaller_steps_cuts_a_chunk_that_exceeds_them() -> None:
    assert picked([prefilling(0, n_tokens=50, hop=1)], budget=16) == [(0, 16)]


def test_a_later_stage_takes_a_chunk_whole_beside_decodes() -> None:
    sequences = [decoding(1, arrival=1), prefilling(0, n_tokens=16, hop=1)]
    assert picked(sequences, budget=16) == [(1, 1), (0, 16)]


def test_a_stage_full_of_decodes_still_admits_the_oldest_prompt() -> None:
    sequences = [decoding(request, arrival=request) for request in range(20)]
    sequences.append(prefilling(99, n_tokens=50))
    assert picked(sequences, budget=16)[-1] == (99, 4)


def test_decodes_beyond_the_budget_wait_and_the_longest_waiting_go_first() -> None:
    sequences = [decoding(request, arrival=50 - request) for request in range(10)]
    assert [request for request, _ in picked(sequences, budget=3)] == [9, 8, 7]


@given(
    decodes=st.lists(st.integers(0, 1000), max_size=30, unique=True),
    prompts=st.lists(st.integers(1, 60), max_size=8),
    hop=st.integers(0, 1),
    is_alone=st.booleans(),
    budget=st.integers(1, 40),
    floor=st.integers(1, 16),
    cap=st.none() | st.integers(1, 20),
    order=st.sampled_from(StepOrder),
)
def test_a_step_has_each_request_once_and_exceeds_its_budget_by_prefills_as_large_at_most(
    decodes: list[int],
    prompts: list[int],
    hop: int,
    is_alone: bool,
    budget: int,
    floor: int,
    cap: int | None,
    order: StepOrder,
) -> None:
    options = EngineOptions(order=order)
    sequences = [decoding(index, arrival=arrival) for index, arrival in enumerate(decodes)]
    sequences += [
        prefilling(1000 + index, n_tokens=n_tokens, hops=ALONE)
        if is_alone
        else prefilling(1000 + index, n_tokens=n_tokens, hop=hop)
        for index, n_tokens in enumerate(prompts)
    ]
    picks = pick_step(
        sequences,
        max_batch_tokens=budget,
        min_prefill_tokens=floor,
        decode_cap=cap,
        options=options,
    )
    requests = [pick.sequence.key.request for pick in picks]
    assert len(set(requests)) == len(requests)
    assert all(1 <= pick.n_tokens <= pick.sequence.pending[0].n_tokens for pick in picks)
    assert bool(picks) == bool(sequences)
    total = sum(pick.n_tokens for pick in picks)
    assert cap is None or sum(request < 1000 for request in requests) <= cap
    largest = max((pick.n_tokens for pick in picks), default=0)
    assert total <= budget + (max(budget + floor, largest) if is_alone else largest)
    if prompts:
        assert 1000 in requests


def test_a_cut_prompt_is_sampled_only_after_its_last_row() -> None:
    sequence = prefilling(0, n_tokens=10)
    head, tail = sequence.take(7), sequence.take(99)
    assert (head.position, head.n_tokens, head.is_sampled, len(head.payload)) == (0, 7, False, 28)
    assert (tail.position, tail.n_tokens, tail.is_sampled, len(tail.payload)) == (7, 3, True, 12)
    assert not sequence.pending


def test_a_chunk_queued_behind_a_cut_one_waits_for_all_of_it() -> None:
    sequence = prefilling(0, n_tokens=20, hop=1)
    add_chunk(sequence, 7, arrival=200)
    taken = []
    while sequence.pending:
        (pick,) = pick_step(
            [sequence],
            max_batch_tokens=8,
            min_prefill_tokens=4,
            decode_cap=None,
            options=EngineOptions(),
        )
        chunk = sequence.take(pick.n_tokens)
        taken.append((chunk.position, chunk.n_tokens, chunk.is_sampled, len(chunk.payload)))
    assert taken == [
        (0, 8, False, 32),
        (8, 8, False, 32),
        (16, 4, True, 16),
        (20, 7, True, 28),
    ]


def test_decodes_beyond_the_cap_wait_and_prompts_take_their_room() -> None:
    sequences = [decoding(request, arrival=request) for request in range(10)]
    sequences.append(prefilling(99, n_tokens=50))
    assert picked(sequences, budget=16, cap=3) == [(0, 1), (1, 1), (2, 1), (99, 13)]


def test_prompts_may_have_a_budget_of_their_own_beside_all_decodes() -> None:
    sequences = [decoding(request, arrival=request) for request in range(10)]
    sequences += [prefilling(98, n_tokens=5), prefilling(99, n_tokens=50)]
    options = EngineOptions(prefill_tokens=12)
    assert picked(sequences, budget=10, options=options)[10:] == [(98, 5), (99, 7)]


def test_no_more_prompts_than_allowed_share_a_step() -> None:
    sequences = [prefilling(request, n_tokens=2) for request in range(5)]
    assert picked(sequences, budget=16, options=EngineOptions(max_prompts=2)) == [(0, 2), (1, 2)]


def test_the_published_systems_take_all_that_arrived_in_its_order_and_prompts_whole() -> None:
    sequences = [
        prefilling(1, n_tokens=300),
        decoding(2, arrival=500),
        decoding(3, arrival=4),
        prefilling(0, n_tokens=400),
    ]
    taken = picked(sequences, budget=10_000, options=PUBLISHED)
    assert taken == [(3, 1), (0, 400), (1, 300), (2, 1)]


def test_a_whole_prompt_beyond_the_budget_is_not_cut() -> None:
    sequences = [prefilling(0, n_tokens=400), prefilling(1, n_tokens=3)]
    assert picked(sequences, budget=16, options=PUBLISHED) == [(0, 400)]


def test_prompts_that_begin_here_are_cut_by_the_link_and_those_on_their_way_are_not() -> None:
    sequences = [
        prefilling(1, n_tokens=50),
        prefilling(2, n_tokens=50),
        prefilling(3, n_tokens=40, hop=1),
    ]
    picks = pick_step(
        [decoding(9, arrival=1), *sequences],
        max_batch_tokens=100,
        min_prefill_tokens=4,
        decode_cap=None,
        options=OURS,
        first_rows=16,
    )
    assert [(pick.sequence.key.request, pick.n_tokens) for pick in picks] == [
        (9, 1),
        (1, 16),
        (3, 40),
    ]
