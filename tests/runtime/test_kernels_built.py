"""CI must not skip what holds the kernels against torch: there, missing kernels are a failure."""

from pathlib import Path

import pytest

from runtime.models.compiled.library import compiled_kernels
from tests.installed import is_required


def test_kernels_are_built_where_a_compiler_is_required() -> None:
    if not is_required("compiler"):
        pytest.skip("HELIX_TEST_REQUIRE does not name the compiler")
    if not {"avx2", "fma", "f16c"} <= set(Path("/proc/cpuinfo").read_text().split()):
        pytest.skip("the CPU has no AVX2, FMA or F16C")
    assert compiled_kernels() is not None
