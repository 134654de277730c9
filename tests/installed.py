"""What tests need from the machine: a test skips by name where it is missing, or fails in CI.

HELIX_TEST_REQUIRE (comma-separated names) lists what must not be missing.
"""

import os
import shutil

import pytest


def is_required(name: str) -> bool:
    """True if HELIX_TEST_REQUIRE names it."""
    return name in os.environ.get("HELIX_TEST_REQUIRE", "").split(",")


def require(name: str, *, found: bool, remedy: str) -> None:
    """Skip the test where `name` is missing, or fail it where HELIX_TEST_REQUIRE names it."""
    if found:
        return
    if is_required(name):
        pytest.fail(f"{name} is required here but missing; {remedy}")
    pytest.skip(f"{name} is not installed; {remedy}")


def installed(program: str, *, package: str = "") -> str:
    """The path of a program; `package` is the Debian package that has it, if named otherwise.

    The test skips where the program is missing, or fails where HELIX_TEST_REQUIRE names the
    package.
    """
    package = package or program
    found = shutil.which(program)
    require(package, found=found is not None, remedy=f"apt-get install {package}")
    assert found is not None
    return found
