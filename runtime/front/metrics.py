"""The front's /metrics in Prometheus' text format; pure.

Engines tell of themselves at their own; here is what only the front knows: where requests went,
what failed, and who is asked now.
"""

from collections.abc import Mapping

from runtime.front.balance import Balance
from runtime.instances.health import Condition
from runtime.instances.instance import Instance


def metrics_page(balance: Balance, instances: Mapping[str, Instance]) -> str:
    """Names are those of the file, which need no escape in a label."""
    open_ones = set(balance.open_instances())
    of_each: list[tuple[str, str, str, Mapping[str, int]]] = [
        ("gauge", "requests_running", "sent to it and not ended",
         {name: balance.under_way_at(name) for name in instances}),
        ("counter", "answers_total", "begun by it",
         {name: balance.answered[name] for name in instances}),
        ("counter", "failures_total", "requests that it did not answer as it should",
         {name: balance.failures[name] for name in instances}),
        ("counter", "output_tokens_total", "given by it",
         {name: balance.output_tokens[name] for name in instances}),
        ("gauge", "instance_ready", "1 while it is well",
         {name: int(one.state.condition is Condition.READY) for name, one in instances.items()}),
        ("gauge", "instance_open", "1 while it is well and not left alone after a failure",
         {name: int(name in open_ones) for name in instances}),
    ]  # fmt: skip
    lines = _head("gauge", "requests", "here: sent to an instance, or waiting for one")
    lines.append(f"helix_front_requests {balance.here}")
    for kind, metric, words, values in of_each:
        lines += _head(kind, metric, words)
        lines += [
            f'helix_front_{metric}{{instance="{name}"}} {value}' for name, value in values.items()
        ]
    return "\n".join(lines) + "\n"


def _head(kind: str, metric: str, words: str) -> list[str]:
    name = f"helix_front_{metric}"
    return [f"# HELP {name} {words}", f"# TYPE {name} {kind}"]
