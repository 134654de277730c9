"""Builds the inner loops, and puts what pages are made of into wheels; the rest: pyproject.toml."""

import importlib.util
import os
import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ASSETS = ("templates", "static", "locale")
# For machines that install from this one (helixweb/operations/join_script.py).
BUILT_FROM = ("setup.py", "pyproject.toml", "README.md", "LICENSE")


class BuildWithAssets(build_py):
    """A checkout has them beside the packages, a wheel in `helixweb/_assets` (see settings)."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        for source, target in self._assets():
            self.mkpath(str(target.parent))
            self.copy_file(str(source), str(target))

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        kept = [] if self.editable_mode else [str(target) for _, target in self._assets()]
        return super().get_outputs(include_bytecode) + kept

    def _assets(self) -> list[tuple[Path, Path]]:
        inside = Path(self.build_lib) / "helixweb" / "_assets"
        files = [path for name in ASSETS for path in sorted(Path(name).rglob("*"))]
        loops = [
            path for name in ("planner", "runtime") for path in sorted(Path(name).rglob("*.[ch]"))
        ]
        return [
            *((path, inside / path) for path in files if path.is_file() and path.suffix != ".po"),
            *((path, inside / "source" / path) for path in (*map(Path, BUILT_FROM), *loops)),
        ]


def compiler_is_missing() -> bool:
    """Whether neither `CC` nor the compiler that Python was built with is here."""
    command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    return shutil.which(command.split()[0]) is None


class BuildLoops(build_ext):
    """Compiles with Zig's C compiler, which the build then requires, where there is no other."""

    def run(self) -> None:
        if compiler_is_missing() and importlib.util.find_spec("ziglang"):
            os.environ["CC"] = f"{sys.executable} -m ziglang cc"
        super().run()


setup(
    cmdclass={"build_ext": BuildLoops, "build_py": BuildWithAssets},
    setup_requires=["ziglang>=0.15"] if compiler_is_missing() else [],
    ext_modules=[
        Extension(
            "planner._loops",
            sources=[str(path) for path in sorted(Path("planner/loops").rglob("*.c"))],
            depends=[str(path) for path in sorted(Path("planner/loops").rglob("*.h"))],
            # Without fused multiply-adds, plans are the same on every processor.
            extra_compile_args=["-O3", "-g0", "-ffp-contract=off"],
            optional=True,
        ),
        Extension(
            "runtime.models.compiled._kernels",
            sources=[
                "runtime/models/compiled/product.c",
                "runtime/models/compiled/product_avx2.c",
                "runtime/models/compiled/product_avx512.c",
                "runtime/models/compiled/product_avx512_bf16.c",
                "runtime/models/compiled/attend.c",
                "runtime/models/compiled/rows.c",
                "runtime/models/compiled/threads.c",
                "runtime/models/compiled/module.c",
            ],
            depends=[
                "runtime/models/compiled/exponential.h",
                "runtime/models/compiled/kernels.h",
                "runtime/models/compiled/product.h",
                "runtime/models/compiled/product_avx512.h",
                "runtime/models/compiled/product_tile.h",
                "runtime/models/compiled/threads.h",
                "runtime/models/compiled/widening.h",
            ],
            extra_compile_args=["-O3", "-g0", "-ffp-contract=off", "-pthread"],
            libraries=["m"],
            extra_link_args=["-pthread"],
            optional=True,
        ),
    ],
)
