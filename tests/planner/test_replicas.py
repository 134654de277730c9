"""The whole model as often as each kind of machine holds it."""

from tiny_problems import placement, tiny_problem

from planner.domain.placement import LayerRange
from planner.placers.replicas import place_replicas


def test_machines_that_hold_the_model_serve_alone():
    placed = place_replicas(tiny_problem([[9.0, 5.0], [6.0, 3.0], [6.0, 3.0]], num_layers=2))
    assert placed.layers == {f"n{number}": LayerRange(first=0, end=2) for number in range(3)}
    assert set(placed.components) == {frozenset({f"n{number}"}) for number in range(3)}


def test_like_machines_hold_it_together_as_often_as_they_can():
    placed = place_replicas(tiny_problem([[9.0, 5.0]] * 5, num_layers=4))
    assert placed.layers == placement(n0=(0, 2), n2=(2, 3), n4=(3, 4), n1=(0, 2), n3=(2, 4)).layers
    assert set(placed.components) == {frozenset({"n0", "n2", "n4"}), frozenset({"n1", "n3"})}


def test_kinds_that_cannot_hold_it_are_left_out():
    held = [[9.0, 5.0], [9.0, 5.0], [3.0]]
    assert place_replicas(tiny_problem(held, num_layers=4)) == placement(n0=(0, 2), n1=(2, 4))
    assert place_replicas(tiny_problem(held, num_layers=5)) is None
