"""Measured and planned shares of the flow side by side, and in words."""

import pytest

from helixweb.charts.flow_share import FlowShare, flow_share

SHARES = (
    FlowShare(node="tower", planned=1.0, measured=0.9),
    FlowShare(node="laptop", planned=0.6, measured=0.2),
    FlowShare(node="mini", planned=0.4, measured=None),
)


def test_both_shares_of_every_node_are_drawn_in_the_order_given() -> None:
    chart = flow_share(SHARES)
    measured, planned = chart.figure["data"]
    assert measured["y"] == planned["y"] == ["tower", "laptop", "mini"]
    assert measured["x"] == [0.9, 0.2, None]
    assert planned["x"] == [1.0, 0.6, 0.4]
    assert chart.figure["layout"]["yaxis"]["categoryarray"] == ["mini", "laptop", "tower"]
    assert chart.rows[2] == ("mini", "—", "40.0%")


@pytest.mark.parametrize(
    ("shares", "summary"),
    [
        (SHARES, "Farthest from the plan: laptop, 20.0% measured, 60.0% planned."),
        (SHARES[2:], "No token passed in the last minute."),
        ((), "No token passed in the last minute."),
    ],
)
def test_the_summary_names_the_node_farthest_from_its_plan(
    shares: tuple[FlowShare, ...], summary: str
) -> None:
    assert flow_share(shares).summary == summary
