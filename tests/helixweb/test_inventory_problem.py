"""The planner's view of the inventory, and what is said when something is missing."""

import pytest

from helixweb.inventory.models import Cluster, LanguageModel, Link, Node, RegionLink
from helixweb.inventory.services import problems, records
from planner.domain.errors import InvalidProblem
from tests.helixweb.looking import contains


@pytest.fixture
def model(cluster: Cluster) -> LanguageModel:
    return problems.models_of(cluster)[0]


def refusal(cluster: Cluster, model: LanguageModel) -> str:
    with pytest.raises(InvalidProblem) as refused:
        problems.build_problem(cluster, model)
    return str(refused.value)


def test_what_a_plan_lacks_is_named_with_the_choice(cluster: Cluster, model: LanguageModel) -> None:
    empty = records.create(Cluster, name="empty")
    assert "has no nodes; join one" in refusal(empty, model)
    other = records.create(
        LanguageModel, name="other", num_layers=2, activation_bytes_per_token=8, bytes_per_layer=1
    )
    assert "'other'" in refusal(cluster, other), "its profiles are of another model"
    records.update(Node.unscoped.get(name="mini"), profile_name="")
    said = refusal(cluster, model)
    contains(said, "'mini' has no compute profile", "big, small")


def test_a_node_that_no_link_reaches_is_named(cluster: Cluster, model: LanguageModel) -> None:
    records.delete(RegionLink.unscoped.get(source="away"))
    assert "no link leads from node 'mini' (region 'away')" in refusal(cluster, model)
    records.delete(RegionLink.unscoped.get(target="away"))
    records.delete(Link.unscoped.get())
    assert "no link leads to node 'mini'" in refusal(cluster, model)


def test_a_declared_node_takes_its_links_along_when_it_is_renamed(cluster: Cluster) -> None:
    records.update(Node.unscoped.get(name="mini"), name="midi")
    assert Link.unscoped.get().target == "midi"
