"""What a run makes large, in words and on the curve."""

from helixweb.charts.curves import CurveGoal, incumbent_curve
from helixweb.planning.models import Incumbent
from helixweb.planning.objectives import objective_figure


def test_fewest_nodes_are_counted_once_the_demand_is_met() -> None:
    assert str(objective_figure("fewest_nodes", 0.82)) == (
        "82% of the demand is met; no node is idle"
    )
    spared = objective_figure("fewest_nodes", 5.0)
    assert (str(spared), spared.plotted) == ("3 idle; the demand is met", 3.0)


def curve(unit: str) -> list[dict[str, object]]:
    point = Incumbent(
        elapsed_s=1.0, flow_tokens_per_s=100.0, upper_bound_tokens_per_s=120.0, placer="some"
    )
    goal = CurveGoal(name="Served", unit=unit, values=[40.0])
    chart = incumbent_curve([point], until_s=2.0, goal=goal)
    assert chart.rows == (("1.0", "40", "100", "120", "some"),)
    assert chart.summary == (
        f"Served 40 {unit} by some after 1.0 s, with a flow of 100 tokens/s; no flow can exceed "
        "120 tokens/s."
    )
    return chart.figure["data"]


def test_tokens_per_second_share_the_flows_axis_and_others_have_their_own() -> None:
    assert curve("decode tokens/s")[3]["yaxis"] == "y"
    assert curve("nodes left idle")[3]["yaxis"] == "y2"
