"""Load-aware routing among whole-model instances (Xiong et al. §4, Algorithm 2, corrected).

A request's workload on an instance is its share of the time of an ideal batch of requests like it,
times e^(theta * kvusage): compute counts while there is room, room counts when it is scarce. The
request is sent where the largest workload of all instances becomes least. Three things differ from
the paper's listing: the minimum starts at infinity, not at 0, which nothing is below; on completion
the stored workload is subtracted; and an idle instance gets a request that it finishes sooner.
Shares of ideal batches mean little for few requests: an instance that is 20 times as fast with 256
of them may be as fast with one.

In the exponent usage counts up to `usage_limit`, by default 1. The paper lets it grow with what
waits, and with more than fits everywhere requests are then spread by room alone, however fast an
instance is: in simulation a quarter to a third fewer tokens/s than the best fixed weights, with the
limit as many or a little more (`python -m benchmarks.instances.overload`).
"""

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from planner.latency_model import LatencyModel
from planner.routers.base import InstanceRouter, RequestSize

DEFAULT_THETA = 2.0  # the paper's
MAX_THETA = 100.0  # e to its power is a number still


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSpeed:
    """Speed and KV room of an instance. `latency` None: times unknown, only its room counts."""

    kv_room_tokens: int
    latency: LatencyModel | None
    most_requests: int = 256

    def request_s(self, size: RequestSize) -> float | None:
        """Its share of the time of as many requests like it as fit (equations 5 and 6)."""
        batch = self._ideal_batch(size)
        seconds = self._batch_s(size, batch=batch)
        return None if seconds is None else seconds / batch

    def finish_s(self, size: RequestSize, *, under_way: int) -> float | None:
        """Seconds for the request in a batch with `under_way` like it; None if unknown."""
        batch = min(self._ideal_batch(size), under_way + 1)
        seconds = self._batch_s(size, batch=batch)
        return None if seconds is None else seconds * (under_way + 1) / batch

    def _ideal_batch(self, size: RequestSize) -> int:
        return min(self.most_requests, max(1, self.kv_room_tokens // size.total_tokens))

    def _batch_s(self, size: RequestSize, *, batch: int) -> float | None:
        if self.latency is None:
            return None
        return self.latency.batch_s(
            batch=batch,
            input_tokens=size.prompt_tokens,
            output_tokens=max(1, size.predicted_output_tokens),
        )


class LoadAwareInstances(InstanceRouter):
    """Chooses by workloads, which it takes back when a request ends."""

    def __init__(
        self,
        instances: Mapping[str, InstanceSpeed],
        *,
        theta: float = DEFAULT_THETA,
        usage_limit: float = 1.0,
    ) -> None:
        """`usage_limit` infinite is the paper's. Raises ValueError without instances, or for a
        theta that is not above 0, or is above MAX_THETA."""
        super().__init__(instances)
        if not 0 < theta <= MAX_THETA:
            raise ValueError(
                f"theta is {theta}; it must be above 0 and at most {MAX_THETA:g} (the paper's is 2)"
            )
        self._instances = dict(instances)
        self._theta = theta
        self._usage_limit = usage_limit
        self._workloads = dict.fromkeys(instances, 0.0)
        self._tokens = dict.fromkeys(instances, 0)
        self._measured: dict[str, float] = {}
        self._added: dict[Hashable, tuple[float, int]] = {}  # workload and tokens of a request

    @property
    def workloads(self) -> Mapping[str, float]:
        """Seconds, weighted by how full each instance was when they were added."""
        return self._workloads

    def kv_usage(self, instance: str) -> float:
        """Equation 8: KV usage of requests in flight, by prediction; the instance's own report if
        that is higher, so that short predictions do not overload it."""
        room = max(1, self._instances[instance].kv_room_tokens)
        return max(self._tokens[instance] / room, self._measured.get(instance, 0.0))

    def observe_kv_usage(self, instance: str, ratio: float | None) -> None:
        self._measured[instance] = 0.0 if ratio is None else ratio

    def observe_kv_room(self, instance: str, tokens: int) -> None:
        self._instances[instance] = replace(self._instances[instance], kv_room_tokens=tokens)

    def _chosen(self, request: Hashable, size: RequestSize, among: Sequence[str]) -> str:
        request_s = self._request_s(size)
        loads = {name: request_s[name] * self._crowding(name) for name in among}

        def largest_with(name: str) -> tuple[float, float, str]:
            """Sort key: the largest workload with the request at `name`, then that of `name`."""
            mine = self._workloads[name] + loads[name]
            others = (load for other, load in self._workloads.items() if other != name)
            return max(mine, *others, 0.0), mine, name

        best = min(among, key=largest_with)
        chosen = self._idle_and_sooner(size, than=best, among=among) or best
        self._workloads[chosen] += loads[chosen]
        self._tokens[chosen] += size.total_tokens
        self._added[request] = loads[chosen], size.total_tokens
        return chosen

    def _idle_and_sooner(
        self, size: RequestSize, *, than: str, among: Collection[str]
    ) -> str | None:
        """The idle one that would finish the request first, if `than` would later."""
        least_s, found = self._finish_s(than, size), None
        for name in among:
            if self._counts[name] or name == than:
                continue
            finish_s = self._finish_s(name, size)
            if least_s is not None and finish_s is not None and finish_s < least_s:
                least_s, found = finish_s, name
        return found

    def _finish_s(self, name: str, size: RequestSize) -> float | None:
        """Weighted as workloads are: one that others fill is not idle."""
        seconds = self._instances[name].finish_s(size, under_way=self._counts[name])
        return None if seconds is None else seconds * self._crowding(name)

    def _crowding(self, name: str) -> float:
        return math.exp(self._theta * min(self._usage_limit, self.kv_usage(name)))

    def _request_s(self, size: RequestSize) -> dict[str, float]:
        """Seconds by instance; those without a latency model use the mean of the others, or 1 if
        none has one (the paper's memory-based baseline)."""
        request_s = {name: speed.request_s(size) for name, speed in self._instances.items()}
        known = [seconds for seconds in request_s.values() if seconds is not None]
        mean_s = sum(known) / len(known) if known else 1.0
        return {name: mean_s if seconds is None else seconds for name, seconds in request_s.items()}

    def end(self, request: Hashable) -> None:
        """Remove the request's workload. Raises KeyError if unknown."""
        instance = self._under_way[request]
        workload, tokens = self._added.pop(request)
        left = self._workloads[instance] - workload
        self._workloads[instance] = max(0.0, left)  # sums of floats end beside 0
        self._tokens[instance] -= tokens
        super().end(request)
