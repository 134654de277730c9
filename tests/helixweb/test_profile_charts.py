"""Charts of several profiles have a bar or a line for each, whatever they are called."""

from typing import Any

import pytest

from helixweb.inventory.as_code.importing import import_problem
from helixweb.inventory.models import Profile
from helixweb.inventory.views.profiles import profile_speed, profiles_memory
from planner.serialization import problem_from_dict


@pytest.mark.parametrize("clusters", [["one"], ["one", "two"]])
def test_profiles_of_one_name_in_several_clusters_are_told_apart(
    user: Any, tiny_problem: dict[str, Any], clusters: list[str]
) -> None:
    for cluster in clusters:
        import_problem(problem_from_dict(tiny_problem), cluster_name=cluster)
    rows = list(
        Profile.unscoped.select_related("cluster", "model").order_by("name", "cluster__name")
    )
    names = ["big", "small"]
    if len(clusters) > 1:
        names = [f"{name}, {cluster}" for name in names for cluster in clusters]
    assert sorted(profiles_memory(rows).figure["data"][0]["y"]) == names
    assert sorted(trace["name"] for trace in profile_speed(rows).figure["data"]) == names
