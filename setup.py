"""Builds the inner loops where there is a C compiler; all else is in pyproject.toml."""

from setuptools import Extension, setup

setup(
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
                "runtime/models/compiled/attend.c",
                "runtime/models/compiled/rows.c",
                "runtime/models/compiled/threads.c",
                "runtime/models/compiled/module.c",
            ],
            depends=[
                "runtime/models/compiled/exponential.h",
                "runtime/models/compiled/kernels.h",
                "runtime/models/compiled/threads.h",
                "runtime/models/compiled/widening.h",
            ],
            extra_compile_args=["-O3", "-ffp-contract=off", "-pthread"],
            libraries=["m"],
            extra_link_args=["-pthread"],
            optional=True,
        ),
    ]
)
