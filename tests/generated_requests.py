"""Requests that Schemathesis makes up from an OpenAPI document, sent one by one and judged.

`attack`: by lot, half as the document allows, half wrong somewhere. `cover`: each bound and each
kind of value of every parameter and body in turn, methods that an address does not have, bodies of
other types. The same seed makes the same requests.

Of Schemathesis's checks these are left out: `positive_data_acceptance`, because much that is
refused no schema can say (a row that is another cluster's, an end before its beginning): callers
look instead at how many requests to each operation were accepted; `max_response_time`, because no
test of ours goes by the clock, but for what hangs; `object_level_authorization`, since the matrix
of roles asks every operation for every role; `use_after_free`, `ensure_resource_availability` and
`ignored_auth`, which look at several requests together: tests of the REST API do that themselves,
since each request here is taken back.
"""

import math
import random
import re
import unittest
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import hypothesis
import schemathesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from schemathesis.checks import CheckFunction, not_a_server_error
from schemathesis.core.failures import AcceptedNegativeData, FailureGroup
from schemathesis.generation.drivers import CoverageGenerator
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.generation.overrides import Override
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    content_type_conformance,
    missing_required_header,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from tests.examples import examples

_WRONG = re.compile(r"violates [^\n]*")
_SCALAR = "(string|number|integer|boolean)"
_OTHER_TYPE = re.compile(rf"violates `type` at \S+ \(was {_SCALAR}, became {_SCALAR}\)")
_OTHER_TYPE_OF = re.compile(r"(\w+)(?: -> Array with invalid item at index \d+)?: Incorrect type$")
CHECKS: Sequence[CheckFunction] = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
)


def refuses_what_is_wrong(context: Any, response: Any, case: schemathesis.Case) -> bool | None:
    """Schemathesis's `negative_data_rejection`; but Django REST framework reads 7 where a text is
    asked for, and "7" or true where a number is, as what was meant."""
    try:
        return negative_data_rejection(context, response, case)
    except AcceptedNegativeData as error:
        if not _is_read_as_meant(error.message, case.body):
            raise
        return None


def _is_read_as_meant(told: str, body: Any) -> bool:
    if wrong := _WRONG.findall(told):
        return all(_OTHER_TYPE.fullmatch(one) for one in wrong)
    if told.endswith(": Incorrect type") and "in query" in told:
        return True  # half a number of something, compared with whole ones
    if named := _OTHER_TYPE_OF.search(told):
        return any(isinstance(one, str | int | float) for one in _values_of(named[1], body))
    return False


def _values_of(name: str, body: Any) -> Iterator[Any]:
    """What stands under that name, however deep; of lists what is in them."""
    if isinstance(body, list):
        for one in body:
            yield from _values_of(name, one)
    elif isinstance(body, dict):
        for key, value in body.items():
            if key == name:
                yield from value if isinstance(value, list) else [value]
            yield from _values_of(name, value)


# For APIs that refuse whatever they do not know.
STRICT_CHECKS: Sequence[CheckFunction] = (
    *CHECKS,
    refuses_what_is_wrong,
    missing_required_header,
    unsupported_method,
    allow_header_conformance,
)
A_HANG_S = 60.0
_TURNS_BETWEEN = 20
# Of each kind to each operation in a long run.
_FEWEST = 8
_SETTINGS = hypothesis.settings(
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
# Who asks is the sender's business. A refusal may have any reason that is the client's fault.
_CONFIG = {
    "generation": {"with-security-parameters": False},
    "checks": {"negative_data_rejection": {"expected-statuses": ["4xx"]}},
}
# Sends a case and gives what came back; may change the case first. The dice are the seed's.
Send = Callable[[schemathesis.Case, random.Random], schemathesis.Response]


@dataclass(slots=True, kw_only=True)
class Tally:
    """Answers by operation and status, and each kind of fault with one request."""

    answers: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    faults: dict[str, str] = field(default_factory=dict)

    @property
    def requests(self) -> int:
        return sum(answers.total() for answers in self.answers.values())

    def never_accepted(self) -> set[str]:
        """Operations that refused all that they were asked."""
        return {
            operation
            for operation, answers in self.answers.items()
            if not any(200 <= status < 400 for status in answers)
        }

    def line(self) -> str:
        classes: Counter[int] = Counter()
        for answers in self.answers.values():
            for status, count in answers.items():
                classes[status // 100] += count
        told = ", ".join(f"{count} {first}xx" for first, count in sorted(classes.items()))
        fewest = min(answers.total() for answers in self.answers.values())
        return (
            f"{self.requests} requests to {len(self.answers)} operations, at least {fewest} to "
            f"each: {told}; {len(self.faults)} kinds of faults"
        )

    def table(self) -> str:
        return "\n".join(
            f"{operation}: {dict(sorted(answers.items()))}"
            for operation, answers in sorted(self.answers.items())
        )

    def report(self) -> str:
        return "\n\n".join(f"{fault}\n{request[:1000]}" for fault, request in self.faults.items())


def attack(
    document: dict[str, Any],
    *,
    send: Send,
    requests: int,
    seed: int,
    between: Callable[[], None],
    checks: Sequence[CheckFunction] = CHECKS,
) -> Tally:
    """At least so many requests, most to operations that take most; `between` looks whether what is
    attacked still answers rightly, ever so often, and raises when it does not."""
    operations = operations_of(document)
    whole = sum(_weight(operation) for operation in operations)
    fewest = min(_FEWEST, requests // 600)
    tally = Tally()
    dice = random.Random(seed)
    while tally.requests < requests:
        each = (requests - tally.requests) / (2 * whole)
        turns = [(each_of, mode) for each_of in operations for mode in schemathesis.GenerationMode]
        dice.shuffle(turns)
        for number, (operation, mode) in enumerate(turns):
            most = max(fewest, math.ceil(each * _weight(operation)))
            judge = _Judge(operation=operation, send=send, checks=checks, tally=tally)
            _turn(judge, mode, most=most, seed=dice.getrandbits(64))
            if number % _TURNS_BETWEEN == 0:
                between()
            # Where all operations have their turn, all have it.
            if tally.requests >= requests and each < 1:
                break
    between()
    return tally


def cover(
    document: dict[str, Any],
    *,
    send: Send,
    seed: int,
    between: Callable[[], None],
    checks: Sequence[CheckFunction],
    part: slice = slice(None),
) -> Tally:
    """Every case of Schemathesis's coverage phase, or that `part` of each operation's."""
    tally = Tally()
    dice = random.Random(seed)
    for number, operation in enumerate(operations_of(document)):
        judge = _Judge(operation=operation, send=send, checks=checks, tally=tally)
        for case in list(_coverage(operation))[part]:
            judge(case, dice)
        if number % _TURNS_BETWEEN == 0:
            between()
    between()
    return tally


def operations_of(document: dict[str, Any]) -> list[Any]:
    config = schemathesis.Config.from_dict(_CONFIG)
    schema = schemathesis.openapi.from_dict(document, config=config)
    return [found.ok() for found in schema.get_all_operations()]


def _weight(operation: Any) -> int:
    return 8 if operation.body else 2 if operation.query or operation.path_parameters else 1


def _coverage(operation: Any) -> Iterator[schemathesis.Case]:
    # What Schemathesis's own pytest plugin and command line run; it has no public name.
    yield from CoverageGenerator(
        operation=operation,
        generation_modes=list(schemathesis.GenerationMode),
        generation_config=operation.schema.config.generation_for(
            operation=operation, phase="coverage"
        ),
        auth_storage=None,
        override=Override(),
        feedback=FeedbackSources(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judge:
    """Sends the cases of one operation and writes down what came back."""

    operation: Any
    send: Send
    checks: Sequence[CheckFunction]
    tally: Tally

    def __call__(self, case: schemathesis.Case, dice: random.Random) -> None:
        response = self.send(case, dice)
        self.tally.answers[self.operation.label][response.status_code] += 1
        for fault in self._faults(case, response):
            told = f"{self.operation.label}: {fault}"
            self.tally.faults.setdefault(told, case.as_curl_command())

    def _faults(self, case: schemathesis.Case, response: schemathesis.Response) -> Iterator[str]:
        try:
            case.validate_response(response, checks=list(self.checks))
        except FailureGroup as group:
            for failure in group.exceptions:
                yield f"{response.status_code} {failure}"[:500]
        if response.elapsed > A_HANG_S:
            yield f"took {response.elapsed:.0f} s"


def _turn(judge: _Judge, mode: schemathesis.GenerationMode, *, most: int, seed: int) -> None:
    @hypothesis.seed(seed)
    @hypothesis.settings(_SETTINGS, max_examples=examples(most))
    @hypothesis.given(
        case=judge.operation.as_strategy(generation_mode=mode),
        draw=st.integers(min_value=0, max_value=2**32),
    )
    def one(case: schemathesis.Case, draw: int) -> None:
        judge(case, random.Random(draw))

    try:
        one()
    except (unittest.SkipTest, hypothesis.errors.Unsatisfiable):
        if mode.is_positive:
            raise
        # nothing of this operation can be wrong
