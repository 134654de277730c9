"""Whole-model instances under a scheduler, simulated."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from planner.simulator.instances import Instance, InstanceSpec
from planner.workload.request import Lengths


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceOutcome:
    """Results of one instance. `finished_s` is when its last request ended, 0 without any."""

    requests: int
    output_tokens: int
    finished_s: float
    preemptions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingOutcome:
    """`tokens_per_s` counts prompts and answers, from the first arrival to the last end."""

    instances: Mapping[str, InstanceOutcome]
    tokens_per_s: float
    output_tokens_per_s: float
    seconds: float

    @property
    def finish_spread(self) -> float:
        """(last - first end of instances) / last end, 0 to 1."""
        ends = [one.finished_s for one in self.instances.values()]
        return 1 - min(ends) / max(ends)


Choose = Callable[[int, Lengths], str]  # number and length of a request -> instance
Ended = Callable[[int], None]


def simulate_instances(
    specs: Mapping[str, InstanceSpec],
    arrivals: Sequence[tuple[float, Lengths]],
    *,
    choose: Choose,
    ended: Ended = lambda _: None,
) -> SchedulingOutcome:
    """Send every request of `arrivals` (seconds, in order) to the instance that `choose` names.

    `ended` is called for every request that ends before the next one is chosen for. Raises
    ValueError for a request that does not fit into its instance, or without requests.
    """
    if not arrivals:
        raise ValueError("no requests to simulate")
    instances = {name: Instance(spec) for name, spec in specs.items()}
    served: dict[str, list[Lengths]] = {name: [] for name in specs}
    for number, (at_s, length) in enumerate(arrivals):
        for instance in instances.values():
            for done in instance.advance(until_s=at_s):
                ended(done)
        name = choose(number, length)
        instances[name].take(number, length, at_s=at_s)
        served[name].append(length)
    for instance in instances.values():
        for done in instance.advance(until_s=float("inf")):
            ended(done)
    seconds = max(one.finished_s for one in instances.values()) - arrivals[0][0]
    output = sum(length.output_tokens for _, length in arrivals)
    prompts = sum(length.prompt_tokens for _, length in arrivals)
    return SchedulingOutcome(
        instances={
            name: InstanceOutcome(
                requests=len(served[name]),
                output_tokens=sum(length.output_tokens for length in served[name]),
                finished_s=instance.finished_s,
                preemptions=instance.preemptions,
            )
            for name, instance in instances.items()
        },
        tokens_per_s=(prompts + output) / seconds,
        output_tokens_per_s=output / seconds,
        seconds=seconds,
    )
