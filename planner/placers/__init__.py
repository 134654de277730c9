"""Placement searches: the baselines (Helix §6.2), the MILP (§4.4), patterns, annealing, and all.

A method is a function of a `Board`, to which it offers what it finds, and a seed. A new one takes
three changes: its module, its name in `base.PLACERS`, and its line in `portfolio.METHODS` (see
`docs/extend/placer.md`). Methods do not know each other, but for the portfolio.
"""
