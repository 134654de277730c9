"""Files of tests are modules without a package: two of one name could not be run together."""

from collections import Counter
from pathlib import Path


def test_no_two_files_of_tests_have_one_name() -> None:
    names = Counter(path.name for path in Path(__file__).parent.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
