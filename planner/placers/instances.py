"""Which tensor-parallel degree on each machine that holds the whole model (Xiong et al. §3).

A machine of u GPUs runs u / t instances of degree t. Every divisor is tried: memory constraints 1
and 2 first, then Algorithm 1's estimate of the throughput from a fitted latency model. Equation 2
of the paper leaves out the bytes of a token's keys and values; they are counted here, for grouped
queries by the KV heads, of which each GPU holds at least one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.domain.errors import PlannerError
from planner.latency_model import LatencyModel
from planner.workload.request import Lengths


class NoDegree(PlannerError, ValueError):
    """No tensor-parallel degree lets a machine serve the model; the message says why for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeModel:
    """The model of an instance. `weights_bytes` is Phi * b of equation 1."""

    num_layers: int
    weights_bytes: float
    query_heads: int
    kv_heads: int
    head_size: int
    kv_element_bytes: float = 2.0

    def kv_token_bytes(self, degree: int) -> float:
        """Keys and values of one token on all GPUs of an instance.

        With more GPUs than KV heads each GPU still holds a whole one.
        """
        heads = max(self.kv_heads, degree)
        return 2 * self.num_layers * heads * self.head_size * self.kv_element_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """`gpus` accelerators of one kind; `latency` by the degree that it was fitted for.

    Of its engine `usage` and `reserved_bytes` are phi_usage and delta_engine of equation 1, the
    latter per instance; `most_requests` is how many it takes into a batch.
    """

    gpus: int
    gpu_memory_bytes: float
    latency: Mapping[int, LatencyModel]
    usage: float = 0.9
    reserved_bytes: float = 2e9
    most_requests: int = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class DegreeEstimate:
    """Estimate of a machine with instances of tensor-parallel `degree`.

    `tokens_per_s` counts prompt and output tokens of all its instances; `refused` says why the
    degree cannot be, and is empty where it can.
    """

    degree: int
    instances: int
    kv_room_tokens: int
    tokens_per_s: float
    refused: str = ""


def kv_room_tokens(machine: Machine, model: WholeModel, *, degree: int) -> int:
    """Tokens whose keys and values fit into an instance beside the weights (equation 1); below 0
    if not even the weights fit."""
    usable_bytes = degree * machine.gpu_memory_bytes * machine.usage
    room_bytes = usable_bytes - machine.reserved_bytes - model.weights_bytes
    return int(room_bytes // model.kv_token_bytes(degree))


def degree_estimates(
    machine: Machine, model: WholeModel, requests: Sequence[Lengths], *, longest: Lengths
) -> tuple[DegreeEstimate, ...]:
    """Estimates for every divisor of the machine's GPUs, fastest first, refused ones last.

    `requests` are a sample of what is asked, `longest` the largest that must fit (I_max, O_max).
    Raises ValueError without requests.
    """
    if not requests:
        raise ValueError("no requests to estimate the throughput of; give a sample of lengths")
    found = [
        _estimate(machine, model, requests, degree=degree, longest=longest)
        for degree in range(1, machine.gpus + 1)
        if machine.gpus % degree == 0
    ]
    return tuple(sorted(found, key=lambda one: (bool(one.refused), -one.tokens_per_s, one.degree)))


def static_tokens_per_s(
    latency: LatencyModel,
    requests: Sequence[Lengths],
    *,
    room_tokens: int,
    most_requests: int,
) -> float:
    """Algorithm 1 for one instance: batches as large as fit, in order, each until its last token.

    A batch takes the room of its prompts and of its longest answer for every request. Raises
    ValueError for a request that does not fit alone.
    """
    seconds, begin = 0.0, 0
    while begin < len(requests):
        end, prompts, longest_answer, longest_prompt = begin, 0, 0, 0
        while end < len(requests) and end - begin < most_requests:
            one = requests[end]
            answer = max(longest_answer, one.output_tokens)
            if prompts + one.prompt_tokens + (end - begin + 1) * answer > room_tokens:
                break
            prompts += one.prompt_tokens
            longest_answer, longest_prompt = answer, max(longest_prompt, one.prompt_tokens)
            end += 1
        if end == begin:
            raise ValueError(
                f"a request of {requests[begin].prompt_tokens} input and "
                f"{requests[begin].output_tokens} output tokens does not fit into KV room of "
                f"{room_tokens} tokens"
            )
        seconds += latency.batch_s(
            batch=end - begin, input_tokens=longest_prompt, output_tokens=longest_answer
        )
        begin = end
    return sum(one.prompt_tokens + one.output_tokens for one in requests) / seconds


def _estimate(
    machine: Machine,
    model: WholeModel,
    requests: Sequence[Lengths],
    *,
    degree: int,
    longest: Lengths,
) -> DegreeEstimate:
    room_tokens = kv_room_tokens(machine, model, degree=degree)
    instances = machine.gpus // degree
    refused = _refusal(machine, model, degree=degree, room_tokens=room_tokens, longest=longest)
    tokens_per_s = 0.0
    if not refused:
        tokens_per_s = instances * static_tokens_per_s(
            machine.latency[degree],
            [at_most(one, longest) for one in requests],
            room_tokens=room_tokens,
            most_requests=machine.most_requests,
        )
    return DegreeEstimate(
        degree=degree,
        instances=instances,
        kv_room_tokens=max(0, room_tokens),
        tokens_per_s=tokens_per_s,
        refused=refused,
    )


def at_most(request: Lengths, longest: Lengths) -> Lengths:
    """The request cut to the prompt and the answer of the longest."""
    return Lengths(
        prompt_tokens=min(request.prompt_tokens, longest.prompt_tokens),
        output_tokens=min(request.output_tokens, longest.output_tokens),
    )


def _refusal(
    machine: Machine, model: WholeModel, *, degree: int, room_tokens: int, longest: Lengths
) -> str:
    if model.query_heads % degree:
        return f"{model.query_heads} attention heads do not divide by {degree}"
    if model.kv_heads % degree and degree % model.kv_heads:
        return f"{model.kv_heads} KV heads neither divide by {degree} nor into it"
    wanted = longest.prompt_tokens + longest.output_tokens
    if room_tokens < wanted:
        return (
            f"its KV room of {max(0, room_tokens)} tokens is less than the longest request's "
            f"{wanted}; use more GPUs an instance, or allow shorter requests"
        )
    if degree not in machine.latency:
        return f"no latency model of degree {degree}; profile the machine with it"
    return ""
