"""Names of instances: plain, short, and of one instance each, whatever nodes are called."""

import re

import pytest

from planner.placers.instance_names import instance_names

PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def test_an_instance_has_its_nodes_name_and_several_have_numbers() -> None:
    assert instance_names("gpu-1", count=1, nodes={"gpu-1"}) == ["gpu-1"]
    assert instance_names("10.0.0.1", count=2, nodes={"10.0.0.1"}) == ["10.0.0.1.0", "10.0.0.1.1"]


@pytest.mark.parametrize(
    "node", ["rack 1", "_x", "机器", "a/../b", "x" * 64, "pipelines", "-", "é", "a\udc80"]
)
def test_a_node_that_no_log_could_be_called_after_gives_a_name_that_one_can(node: str) -> None:
    (name,) = instance_names(node, count=1, nodes={node})
    assert PLAIN.fullmatch(name)
    assert name != "pipelines"
    many = instance_names(node, count=1000, nodes={node})
    assert all(PLAIN.fullmatch(one) for one in many)


def test_no_two_instances_have_the_same_name() -> None:
    nodes = {"a", "a.0", "a.1", "a b", "a_b", "a/b"}
    names = [
        name
        for node in nodes
        for name in instance_names(node, count=2 if node == "a" else 1, nodes=nodes)
    ]
    assert len(set(names)) == len(names) == 7
