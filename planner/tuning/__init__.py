"""Tuning constants of searches, which trade time against quality, each with its reason.

A reason is what was measured, or what the constant trades where it was not measured apart from the
rest. `benchmarks/planner` measures all of them together: run `acceptance`, `decode_bars` and
`replan` there after a change. Tolerances for rounding are no tuning, and stay where they are used.
"""
