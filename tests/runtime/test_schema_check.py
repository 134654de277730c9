"""Schemas of strangers, some made to stop whoever reads them."""

import asyncio
import json
import subprocess
import sys
from importlib import util

import pytest

from runtime.coordinator.schema_check import SchemaCheck
from runtime.protocol.openai import ApiError

pytestmark = pytest.mark.skipif(
    util.find_spec("llguidance") is None, reason="llguidance is not installed"
)

GOOD = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
# Each is followed by the next: the library overflows its stack.
CHAIN = {
    "$ref": "#/$defs/d0",
    "$defs": {
        **{
            f"d{index}": {
                "type": "object",
                "properties": {"a": {"$ref": f"#/$defs/d{index + 1}"}},
            }
            for index in range(3000)
        },
        "d3000": {"type": "string"},
    },
}
# Minutes of work, and gigabytes.
COMBINED = {"allOf": [{"type": "string", "pattern": f".*{index}.*"} for index in range(60)]}


def complaint_of(check: SchemaCheck, schema: object) -> str:
    try:
        asyncio.run(check.check(json.dumps(schema), param="response_format"))
    except ApiError as error:
        return f"{error.status} {error.param}: {error.message}"
    return ""


@pytest.mark.processes
def test_a_schema_that_can_be_followed_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    check = SchemaCheck()
    assert complaint_of(check, GOOD) == ""

    def start_nothing(*_arguments: object, **_options: object) -> None:
        raise AssertionError("a process was started for a schema that is known")

    monkeypatch.setattr(subprocess, "run", start_nothing)
    assert complaint_of(check, GOOD) == ""


@pytest.mark.processes
def test_what_the_library_says_of_a_schema_is_told() -> None:
    told = complaint_of(SchemaCheck(), {"type": "nothing"})
    assert told.startswith("400 response_format: 'response_format' asks for a schema that cannot")
    assert "nothing" in told


CLOSE = {"oneOf": [{"type": "string"}, {"type": "string", "minLength": 2}]}


@pytest.mark.processes
@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (CLOSE, "use 'anyOf' (at #)"),
        (
            {"type": "object", "properties": {"a": {"oneOf": [True, {}]}, "b": {"anyOf": [CLOSE]}}},
            "use 'anyOf' (at #/properties/a)",
        ),
        (
            {"$ref": "#/$defs/x", "$defs": {"x": {"type": "array", "items": {"not": {}}}}},
            "'not' is not supported; list what is allowed with 'enum' or 'anyOf' (at "
            "#/$defs/x/items)",
        ),
        (
            {"type": "array", "items": [{"type": "array", "uniqueItems": True}]},
            "'uniqueItems' is not supported; leave it out (at #/items/0)",
        ),
        ({"anyOf": [{"type": "string", "pattern": "("}]}, "unclosed group (at #/anyOf/0)"),
    ],
    ids=["top", "property", "definition", "item", "pattern"],
)
def test_a_keyword_that_is_not_followed_is_named_with_its_place_and_another(
    schema: object, told: str
) -> None:
    said = complaint_of(SchemaCheck(), schema)
    assert said.endswith(told)
    assert "coerce" not in said


# Few bytes, and a lexer of seconds.
MULTIPLE = {"type": "integer", "multipleOf": 1_000_003}
OPTIONAL = {"type": "object", "properties": {f"p{index}": {} for index in range(4000)}}


@pytest.mark.processes
@pytest.mark.parametrize(
    "schema",
    [CHAIN, COMBINED, MULTIPLE, OPTIONAL],
    ids=["chain", "combined", "multiple", "optional"],
)
def test_a_schema_made_to_stop_its_reader_is_refused_and_stops_nobody(schema: object) -> None:
    check = SchemaCheck()
    assert "400 response_format: " in complaint_of(check, schema)
    assert "it is too complex" in complaint_of(check, schema)
    assert complaint_of(check, GOOD) == ""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"$ref": "#"}, "it allows no answer"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "it allows no answer"),
        ({"type": "object", "properties": {f"p{n}": {} for n in range(500)}}, "too complex"),
        (
            {
                "type": "object",
                "properties": {
                    "a": {"type": "object", "properties": {f"p{n}": {} for n in range(500)}}
                },
                "required": ["a"],
            },
            "too complex",
        ),
        (False, "Unsatisfiable"),
    ],
    ids=["cycle", "cycle of definitions", "optional", "optional within", "nothing"],
)
def test_a_schema_that_only_an_answer_shows_to_be_hopeless_is_refused(
    schema: object, said: str
) -> None:
    complaint = complaint_of(SchemaCheck(), schema)
    assert complaint.startswith("400 response_format: ")
    assert said in complaint


@pytest.mark.processes
@pytest.mark.parametrize(
    "schema",
    [
        True,
        {"type": "array", "items": {"type": "number"}},
        {"type": "object", "properties": {"next": {"$ref": "#"}}},
        {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(100)}},
        {"enum": [f"word {n}" for n in range(1000)]},
        {"type": "string", "pattern": "^[a-z]{2,20}$", "minLength": 2},
        {"type": "integer", "multipleOf": 7},
    ],
    ids=["any", "list", "list of lists", "optional", "words", "pattern", "multiple"],
)
def test_schemas_as_people_write_them_are_followed(schema: object) -> None:
    assert complaint_of(SchemaCheck(), schema) == ""


@pytest.mark.processes
def test_of_a_schema_that_was_looked_at_nothing_large_is_kept() -> None:
    check = SchemaCheck()
    schema = json.dumps(GOOD | {"title": "x" * 10_000})
    before = sys.getrefcount(schema)
    asyncio.run(check.check(schema, param="response_format"))
    assert sys.getrefcount(schema) == before
    assert len(complaint_of(check, {"type": "x" * 100_000})) < 2000


@pytest.mark.processes
def test_many_at_once_are_all_answered() -> None:
    async def all_of_them() -> list[object]:
        check = SchemaCheck()
        schemas = [json.dumps(GOOD | {"title": str(index % 3)}) for index in range(12)]
        return await asyncio.gather(*(check.check(each, param="x") for each in schemas))

    assert asyncio.run(all_of_them()) == [None] * 12
