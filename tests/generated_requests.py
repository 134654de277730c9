"""Requests that Schemathesis makes up from an OpenAPI document, sent one by one and judged.

Half follow the document, half break it somewhere. The same seed makes the same requests.
"""

import math
import random
import unittest
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import hypothesis
import schemathesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
A_HANG_S = 60.0
_TURNS_BETWEEN = 20
_SETTINGS = hypothesis.settings(
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
# Sends a case and gives what came back; may change the case first. The dice are the seed's.
Send = Callable[[schemathesis.Case, random.Random], schemathesis.Response]


@dataclass(slots=True, kw_only=True)
class Tally:
    """Answers by class of status and by operation, and each kind of fault with one request."""

    statuses: Counter[str] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)
    faults: dict[str, str] = field(default_factory=dict)

    @property
    def requests(self) -> int:
        return self.statuses.total()

    def line(self) -> str:
        classes = ", ".join(f"{count} {name}" for name, count in sorted(self.statuses.items()))
        return f"{self.requests} requests to {len(self.operations)} operations: {classes}"

    def report(self) -> str:
        return "\n\n".join(f"{fault}\n{request[:1000]}" for fault, request in self.faults.items())


def attack(
    document: dict[str, Any],
    *,
    send: Send,
    requests: int,
    seed: int,
    between: Callable[[], None],
) -> Tally:
    """At least so many requests, most to operations that take most; `between` looks whether what is
    attacked still answers rightly, ever so often, and raises when it does not."""
    schema = schemathesis.openapi.from_dict(document)
    operations = [found.ok() for found in schema.get_all_operations()]
    whole = sum(_weight(operation) for operation in operations)
    tally = Tally()
    dice = random.Random(seed)
    while tally.requests < requests:
        each = (requests - tally.requests) / (2 * whole)
        turns = [(each_of, mode) for each_of in operations for mode in schemathesis.GenerationMode]
        dice.shuffle(turns)
        for number, (operation, mode) in enumerate(turns):
            most = math.ceil(each * _weight(operation))
            _turn(operation, mode, send=send, most=most, seed=dice.getrandbits(64), tally=tally)
            if number % _TURNS_BETWEEN == 0:
                between()
            if tally.requests >= requests:
                break
    between()
    return tally


def _weight(operation: Any) -> int:
    return 8 if operation.body else 2 if operation.query or operation.path_parameters else 1


def _turn(
    operation: Any,
    mode: schemathesis.GenerationMode,
    *,
    send: Send,
    most: int,
    seed: int,
    tally: Tally,
) -> None:
    @hypothesis.seed(seed)
    @hypothesis.settings(_SETTINGS, max_examples=most)
    @hypothesis.given(
        case=operation.as_strategy(generation_mode=mode),
        draw=st.integers(min_value=0, max_value=2**32),
    )
    def one(case: schemathesis.Case, draw: int) -> None:
        response = send(case, random.Random(draw))
        tally.operations[operation.label] += 1
        tally.statuses[f"{response.status_code // 100}xx"] += 1
        for fault in _faults(case, response):
            tally.faults.setdefault(f"{operation.label}: {fault}", case.as_curl_command())

    try:
        one()
    except (unittest.SkipTest, hypothesis.errors.Unsatisfiable):
        if mode.is_positive:
            raise
        # nothing of this operation can be wrong


def _faults(case: schemathesis.Case, response: schemathesis.Response) -> Iterator[str]:
    try:
        case.validate_response(response, checks=CHECKS)
    except FailureGroup as group:
        for failure in group.exceptions:
            yield f"{response.status_code} {failure}"[:500]
    if response.elapsed > A_HANG_S:
        yield f"took {response.elapsed:.0f} s"
