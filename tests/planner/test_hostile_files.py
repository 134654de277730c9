"""Problem and plan files of somebody who means harm: refused soon, and nothing of theirs runs."""

from pathlib import Path

import pytest

from planner.domain.errors import InvalidProblem
from planner.serialization import problem_from_text

DOUBLED = 200
# Each list or mapping stands twice in the next: 2**200 of them, if anybody looked at all.
LISTS = "a0: &a0 [x]\n" + "".join(
    f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, DOUBLED)
)
MERGES = "b0: &b0 {x: 1}\n" + "".join(
    f"b{n}: &b{n}\n  <<: [*b{n - 1}, *b{n - 1}]\n" for n in range(1, DOUBLED)
)
DEEP = 20_000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{LISTS}format: helixweb.problem/1\nname: *a{DOUBLED - 1}\n", "not a key of the format"),
        ("format: helixweb.problem/1\nname: &n [*n, *n]\n", "name is a list of 2 items"),
        (MERGES, "merge keys"),
        ("[" * DEEP, "nested too deeply"),
        ('{"a":' * DEEP, "nested too deeply"),
        ("format: " + "9" * 100_000, "not valid YAML"),
        ('{"format": ' + "9" * 100_000 + "}", "write shorter numbers"),
        ("format: !!binary |\n  R0lGODlh\n", "format is"),
    ],
    ids=["lists", "itself", "merges", "deep list", "deep object", "number", "json number", "bytes"],
)
def test_a_file_that_would_grow_without_end_is_refused(text: str, said: str) -> None:
    hint = "x.json" if text.startswith(('{"', "[[")) else "x.yaml"
    with pytest.raises(InvalidProblem) as refused:
        problem_from_text(text, name_hint=hint)
    assert said in str(refused.value)
    assert len(str(refused.value)) < 600


@pytest.mark.parametrize(
    "tag",
    ["!!python/object/apply:os.system", "!!python/object/new:os.system", "!!python/name:os.system"],
)
def test_a_file_makes_no_objects_of_python(tag: str, tmp_path: Path) -> None:
    proof = tmp_path / "it-ran"
    with pytest.raises(InvalidProblem, match="not valid YAML"):
        problem_from_text(f"{tag} ['touch {proof}']\n", name_hint="x.yaml")
    assert not proof.exists()
