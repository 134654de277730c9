"""The front's /metrics in Prometheus' text format; pure.

Engines tell of themselves at their own; here is what only the front knows: where requests went,
what failed, and which instances are asked now.
"""

from collections.abc import Mapping

from runtime.front.balance import Balance
from runtime.instances.health import Condition
from runtime.instances.instance import Instance
from runtime.protocol.exposition import Samples, counter, gauge, page


def metrics_page(balance: Balance, instances: Mapping[str, Instance]) -> bytes:
    open_ones = set(balance.open_instances())

    def of_each(values: Mapping[str, float]) -> Samples:
        return [({"instance": name}, values[name]) for name in instances]

    ready = {name: one.state.condition is Condition.READY for name, one in instances.items()}
    return page([
        gauge(
            "helix_front_requests",
            "here: sent to an instance, or waiting for one",
            [({}, balance.here)],
        ),
        gauge(
            "helix_front_requests_running",
            "sent to it and not ended",
            of_each({name: balance.under_way_at(name) for name in instances}),
        ),
        counter("helix_front_answers_total", "begun by it", of_each(balance.answered)),
        counter(
            "helix_front_failures_total",
            "requests that it did not answer as it should",
            of_each(balance.failures),
        ),
        counter(
            "helix_front_output_tokens_total", "given by it", of_each(balance.output_tokens)
        ),
        gauge("helix_front_instance_ready", "1 while it is well", of_each(ready)),
        gauge(
            "helix_front_instance_open",
            "1 while it is well and not left alone after a failure",
            of_each({name: name in open_ones for name in instances}),
        ),
    ])  # fmt: skip
