"""Instances on every machine that holds the whole model, each with its best degree.

What a machine can hold and do comes from the compute profile of its node: the profile describes
the machine as one device, so an instance on t of u GPUs has t / u of its memory. Times are the
profile's `instance_times` of that degree; for the whole machine else the layer times of a stage.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product

from planner.capacity import holds_model, layer_limits
from planner.domain.instance import (
    Backend,
    DegreeRank,
    InstanceTimes,
    PlannedInstance,
)
from planner.domain.layer_times import Points
from planner.domain.problem import Problem
from planner.domain.profile import ComputeProfile
from planner.latency_fit import Timing, fit_latency_model
from planner.latency_model import Fit, LatencyModel
from planner.placers.instance_names import instance_names
from planner.placers.instances import (
    DegreeEstimate,
    Machine,
    NoDegree,
    WholeModel,
    at_most,
    degree_estimates,
)
from planner.simulator.instances import Instance, InstanceSpec
from planner.timing import layer_times_of
from planner.workload.lengths import scaled_lengths
from planner.workload.request import Lengths

_SAMPLE = 512  # requests of the estimate
_LONGEST_SHARE = 0.95  # of them, the others are cut: what must fit (I_max, O_max)
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
_LENGTHS = (32, 128, 512, 2048)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedInstances:
    """`ranks` of every kind of machine that holds the model; `smaller`: nodes that do not, or that
    have no room for requests beside it."""

    instances: tuple[PlannedInstance, ...]
    ranks: tuple[DegreeRank, ...]
    smaller: tuple[str, ...]

    @property
    def output_tokens_per_s(self) -> float:
        return sum(one.output_tokens_per_s for one in self.instances)


def place_instances(
    problem: Problem, *, backend: Backend = "helix", degree: int | None = None, seed: int = 0
) -> PlacedInstances:
    """Instances on all nodes that can; with `degree` on all their GPUs that many each.

    Raises NoDegree when no node can, or not all that hold the model the `degree` asked for.
    """
    check_instances(problem, degree=degree)
    requests, longest = _requests(problem, seed=seed)
    kinds: dict[tuple[str, int], list[str]] = {}
    nodes = {node.name for node in problem.cluster.nodes}
    smaller = []
    for node in problem.cluster.nodes:
        if not holds_model(problem, node.name):
            smaller.append(node.name)
        else:
            kinds.setdefault((node.compute_profile, node.gpus), []).append(node.name)
    instances: list[PlannedInstance] = []
    ranks: list[DegreeRank] = []
    refused: list[NoDegree] = []
    for (profile, gpus), names in kinds.items():
        machine, model = machine_of(problem, names[0])
        estimates = degree_estimates(machine, model, requests, longest=longest)
        estimates = tuple(_if_known(one, problem) for one in estimates)
        mine = [
            _rank(one, machine, requests, kind=f"{profile} x {gpus}", names=names)
            for one in estimates
        ]
        mine.sort(key=lambda one: (bool(one.refused), -one.output_tokens_per_s, one.degree))
        ranks += mine
        try:
            best = _best(mine, wanted=degree, names=names)
        except NoDegree as error:
            refused.append(error)
            smaller += names
            continue
        instances += [
            each
            for name in names
            for each in _instances_on(name, best, times=_times(machine.latency[best.degree]),
                                      backend=backend, nodes=nodes)
        ]  # fmt: skip
    if refused and (degree is not None or not instances):
        raise refused[0]
    instances.sort(key=lambda one: one.name)
    return PlacedInstances(
        instances=tuple(instances), ranks=tuple(ranks), smaller=tuple(sorted(smaller))
    )


def check_instances(problem: Problem, *, degree: int | None = None) -> None:
    """Raise NoDegree as `place_instances` would for the size of machines or the degree, but without
    estimates."""
    whole = [node for node in problem.cluster.nodes if holds_model(problem, node.name)]
    if not whole:
        raise NoDegree(_nobody_holds(problem))
    for node in whole:
        _check_degree(problem, degree, gpus=node.gpus, names=[node.name])


def machine_of(problem: Problem, node_name: str) -> tuple[Machine, WholeModel]:
    """The node, which holds all layers, as the degree search sees it. Raises InvalidProblem where
    its profile says nothing about speed."""
    profile, spec = problem.profile_of(node_name), problem.model
    gpus, layers = problem.cluster.node(node_name).gpus, spec.num_layers
    weights_bytes = layers * spec.bytes_per_layer
    kv_heads = spec.num_kv_heads or spec.num_heads or 1
    layer_token_bytes = _layer_token_bytes(profile, layers, spec.bytes_per_layer)
    room = profile.kv_room_token_layers(layers, has_first=True, has_last=True)
    room_tokens = room / layers
    memory_bytes = weights_bytes + room_tokens * layers * layer_token_bytes
    latency = {degree: latency_of(times) for degree, times in profile.instance_times.items()}
    if gpus not in latency:
        latency[gpus] = _derived(problem, node_name)
    # The profile's memory is what an engine may use, its own needs taken off already.
    machine = Machine(
        gpus=gpus,
        gpu_memory_bytes=memory_bytes / gpus,
        latency=latency,
        usage=1.0,
        reserved_bytes=0.0,
    )
    return machine, WholeModel(
        num_layers=layers,
        weights_bytes=weights_bytes,
        query_heads=spec.num_heads or kv_heads * gpus,
        kv_heads=kv_heads,
        head_size=1,
        kv_element_bytes=layer_token_bytes / (2 * kv_heads),
    )


def latency_of(times: InstanceTimes) -> LatencyModel:
    """The latency model with these parameters."""
    return LatencyModel(prefill=Fit(parameters=times.prefill), decode=Fit(parameters=times.decode))


def _layer_token_bytes(profile: ComputeProfile, layers: int, bytes_per_layer: float) -> float:
    """Keys and values of a token in one layer: a layer more leaves so much less room for them.

    Where the profile does not say, the memory beside the weights of all layers is shared out.
    """
    room = profile.kv_capacity_token_layers
    lost = room[0] - room[layers - 1]
    if lost > 0:
        return (layers - 1) * bytes_per_layer / lost
    spare_bytes = max(0.0, profile.vram_bytes - layers * bytes_per_layer)
    return spare_bytes / room[layers - 1] if room[layers - 1] > 0 and spare_bytes > 0 else 1.0


def _derived(problem: Problem, node_name: str) -> LatencyModel:
    """Equations 3 and 4 fitted to what a stage of all layers takes."""
    layers = problem.model.num_layers
    times = layer_times_of(problem, node_name).held(layers, has_head=True)
    prefills, decodes = [], []
    for batch, tokens in product(_BATCHES, _LENGTHS):
        prompt_s = _rising(times.prompt_s(batch * tokens), batch * tokens, times.prompt)
        decode_s = _rising(times.decode_s(batch), batch, times.decode)
        prefills.append(Timing(batch=batch, tokens=tokens, seconds=layers * prompt_s))
        decodes.append(Timing(batch=batch, tokens=tokens, seconds=layers * decode_s))
    return fit_latency_model(prefills, decodes)


def _rising(seconds: float, amount: int, points: Points) -> float:
    """`seconds` for `amount`; beyond the last of `points` in proportion to it if the extrapolated
    line does not rise, as when the last two times differ by noise."""
    most, most_s = points[-1]
    return most_s * amount / most if amount > most and seconds <= most_s else seconds


def _requests(problem: Problem, *, seed: int) -> tuple[list[Lengths], Lengths]:
    """A sample of the workload, and the longest of it that must fit."""
    sample = list(islice(scaled_lengths(problem.workload, seed=seed), _SAMPLE))
    at = int(_LONGEST_SHARE * (_SAMPLE - 1))
    longest = Lengths(
        prompt_tokens=sorted(one.prompt_tokens for one in sample)[at],
        output_tokens=sorted(one.output_tokens for one in sample)[at],
    )
    return [at_most(one, longest) for one in sample], longest


def _if_known(one: DegreeEstimate, problem: Problem) -> DegreeEstimate:
    if one.refused or one.degree == 1 or problem.model.num_heads is not None:
        return one
    return replace(
        one,
        tokens_per_s=0.0,
        refused="nobody knows how many attention heads the model has; give its num_heads",
    )


def _rank(
    one: DegreeEstimate,
    machine: Machine,
    requests: Sequence[Lengths],
    *,
    kind: str,
    names: Sequence[str],
) -> DegreeRank:
    """The estimate refined: the machine's instances simulated while requests always wait."""
    all_s = output_s = 0.0
    if not one.refused:
        spec = InstanceSpec(
            latency=machine.latency[one.degree],
            kv_room_tokens=one.kv_room_tokens,
            most_requests=machine.most_requests,
        )
        instance = Instance(spec)
        for number, length in enumerate(requests):
            instance.take(number, length)
        instance.advance(until_s=math.inf)
        prompts = sum(length.prompt_tokens for length in requests)
        output = sum(length.output_tokens for length in requests)
        all_s = one.instances * ((prompts + output) / instance.finished_s)
        output_s = one.instances * (output / instance.finished_s)
    return DegreeRank(
        machine=kind,
        nodes=tuple(names),
        degree=one.degree,
        instances=one.instances,
        kv_room_tokens=one.kv_room_tokens,
        static_tokens_per_s=one.tokens_per_s,
        simulated_tokens_per_s=all_s,
        output_tokens_per_s=output_s,
        refused=one.refused,
    )


def _best(ranks: Sequence[DegreeRank], *, wanted: int | None, names: Sequence[str]) -> DegreeRank:
    """The first of the ranking, or the degree that was asked for. Raises NoDegree."""
    asked = [one for one in ranks if wanted in (None, one.degree)]
    if asked[0].refused:
        reasons = "; ".join(f"degree {one.degree}: {one.refused}" for one in asked)
        raise NoDegree(
            f"node {names[0]!r} holds the model, but no instance of it can run there. {reasons}"
        )
    return asked[0]


def _check_degree(problem: Problem, degree: int | None, *, gpus: int, names: Sequence[str]) -> None:
    if degree is None:
        return
    heads = problem.model.num_heads
    if gpus % degree:
        raise NoDegree(
            f"a tensor-parallel degree of {degree} does not divide the {gpus} GPUs of node "
            f"{names[0]!r}; choose a divisor, exclude the node, or let the planner choose"
        )
    if heads is not None and heads % degree:
        raise NoDegree(
            f"a tensor-parallel degree of {degree} does not divide the {heads} attention heads of "
            f"{problem.model.name}; choose a divisor, or let the planner choose"
        )


def _nobody_holds(problem: Problem) -> str:
    layers = problem.model.num_layers
    most, name = max(
        (layer_limits(problem, node.name).both, node.name) for node in problem.cluster.nodes
    )
    return (
        f"no machine holds all {layers} layers of {problem.model.name}: the most is {most}, on "
        f"node {name!r}; plan pipelines instead, or add a machine with more memory"
    )


def _instances_on(
    name: str, rank: DegreeRank, *, times: InstanceTimes, backend: Backend, nodes: Collection[str]
) -> list[PlannedInstance]:
    names = instance_names(name, count=rank.instances, nodes=nodes)
    return [
        PlannedInstance(
            name=called,
            node=name,
            gpus=tuple(range(number * rank.degree, (number + 1) * rank.degree)),
            tensor_parallel=rank.degree,
            backend=backend,
            output_tokens_per_s=rank.output_tokens_per_s / rank.instances,
            kv_room_tokens=rank.kv_room_tokens,
            times=times,
        )
        for number, called in enumerate(names)
    ]


def _times(latency: LatencyModel) -> InstanceTimes:
    return InstanceTimes(prefill=latency.prefill.parameters, decode=latency.decode.parameters)
