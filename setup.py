"""Builds the inner loops where there is a C compiler, and puts what pages are made of into wheels;
all else is in pyproject.toml."""

from pathlib import Path

from setuptools import Extension, setup
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


setup(
    cmdclass={"build_py": BuildWithAssets},
    ext_modules=[
        Extension(
            "planner.placers.compiled._loops",
            sources=[
                "planner/placers/compiled/stage_loop.c",
                "planner/placers/compiled/interval_loop.c",
                "planner/placers/compiled/move_loop.c",
                "planner/placers/compiled/module.c",
            ],
            # Fused multiply-adds would round unlike the same loops in Python.
            extra_compile_args=["-O3", "-ffp-contract=off"],
            optional=True,
        ),
        Extension(
            "planner.integer_flow._dinic",
            sources=["planner/integer_flow/dinic.c"],
            extra_compile_args=["-O3"],
            optional=True,
        ),
        Extension(
            "planner.bounds._cover",
            sources=["planner/bounds/cover.c"],
            extra_compile_args=["-O3", "-ffp-contract=off"],
            optional=True,
        ),
        Extension(
            "planner.estimate.compiled._estimate",
            sources=[
                "planner/estimate/compiled/sustained.c",
                "planner/estimate/compiled/stage_search.c",
                "planner/estimate/compiled/module.c",
            ],
            depends=["planner/estimate/compiled/sustained.h"],
            extra_compile_args=["-O3", "-ffp-contract=off"],
            optional=True,
        ),
        Extension(
            "planner.simulator.compiled._engine",
            sources=[
                "planner/simulator/compiled/accounts.c",
                "planner/simulator/compiled/pools.c",
                "planner/simulator/compiled/pages.c",
                "planner/simulator/compiled/links.c",
                "planner/simulator/compiled/nodes.c",
                "planner/simulator/compiled/module.c",
            ],
            depends=["planner/simulator/compiled/engine.h"],
            # Fused multiply-adds would round unlike the same engine in Python.
            extra_compile_args=["-O3", "-ffp-contract=off"],
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
            extra_compile_args=["-O3", "-ffp-contract=off", "-pthread"],
            libraries=["m"],
            extra_link_args=["-pthread"],
            optional=True,
        ),
    ],
)
