"""What is kept of a stage's requests, against a look at each of them."""

from hypothesis import given
from hypothesis import strategies as st

from runtime.engine.running_requests import RunningRequests
from runtime.engine.sequence import Chunk, RequestKey, Sequence
from runtime.protocol.data import Hop, Route, Sampling

GREEDY = Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=8)


def make_sequence(request: int, *, prompt_tokens: int, layers: int) -> Sequence:
    route = Route(
        hops=(Hop(node="a", first=0, end=layers),), sampling=GREEDY, prompt_tokens=prompt_tokens
    )
    return Sequence(
        key=RequestKey(request=request, epoch=0), generation=1, route=route, hop=0, arrival=request
    )


def rows(sequence: Sequence, n_tokens: int) -> Chunk:
    return Chunk(
        position=sequence.received,
        n_tokens=n_tokens,
        payload=memoryview(bytes(4 * n_tokens)),
        is_sampled=True,
        arrival=0,
    )


@given(
    acts=st.lists(
        st.tuples(
            st.sampled_from(["add", "append", "take", "remove"]),
            st.integers(0, 4),  # which request
            st.integers(1, 9),  # tokens
        ),
        max_size=80,
    )
)
def test_what_is_counted_as_requests_come_run_and_go_is_what_a_look_at_all_finds(
    acts: list[tuple[str, int, int]],
) -> None:
    running_requests = RunningRequests()
    for act, request, n_tokens in acts:
        key = RequestKey(request=request, epoch=0)
        sequence = running_requests.by_key.get(key)
        if act == "remove":
            assert running_requests.remove(key) is sequence
        elif act == "add" and sequence is None:
            running_requests.add(make_sequence(request, prompt_tokens=n_tokens, layers=n_tokens))
        elif act == "append" and sequence is not None:
            running_requests.append(sequence, rows(sequence, n_tokens))
        elif act == "take" and sequence is not None and sequence.pending:
            running_requests.take(sequence, n_tokens)
        all_of_them = running_requests.by_key.values()
        assert set(running_requests.waiting) == {one.key for one in all_of_them if one.pending}
        assert running_requests.decoding == sum(one.is_decoding for one in all_of_them)
        assert running_requests.layers == sum(one.end - one.first for one in all_of_them)


def test_a_request_whose_prompt_is_all_here_already_decodes_from_the_beginning() -> None:
    running_requests = RunningRequests()
    sequence = make_sequence(1, prompt_tokens=4, layers=2)
    sequence.received = sequence.done = 4
    running_requests.add(sequence)
    assert running_requests.decoding == 1
    running_requests.remove(sequence.key)
    assert running_requests.decoding == 0
