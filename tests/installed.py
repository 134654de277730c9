"""Programs that tests need: where one is missing they are skipped by name, or fail in CI."""

import os
import shutil

import pytest


def installed(program: str, *, package: str) -> str:
    """Its path. Fails where HELIX_TEST_REQUIRE (comma-separated) names the `package`."""
    found = shutil.which(program)
    if found is None:
        remedy = f"apt-get install {package}"
        if package in os.environ.get("HELIX_TEST_REQUIRE", "").split(","):
            pytest.fail(f"{program} is required here but missing; {remedy}")
        pytest.skip(f"{program} is not installed; {remedy}")
    return found
