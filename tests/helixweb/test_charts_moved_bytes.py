"""The chart of a replanning's answers."""

from helixweb.charts.moved_bytes import Answer, moved_bytes


def answer(moved: float, flow: float, *, is_chosen: bool = False) -> Answer:
    return Answer(moved_bytes=moved, flow_tokens_per_s=flow, method="annealed", is_chosen=is_chosen)


def test_answers_are_steps_over_gigabytes_with_the_plans_own_marked() -> None:
    chart = moved_bytes([answer(0, 100.0), answer(2.5e9, 180.0, is_chosen=True)])
    steps, own = chart.figure["data"]
    assert (steps["x"], steps["y"]) == ([0.0, 2.5], [100.0, 180.0])
    assert steps["line"]["shape"] == "hv"
    assert (own["x"], own["y"]) == ([2.5], [180.0])
    assert chart.rows[1] == ("2.5 GB", "180", "annealed")
    assert chart.summary == ("From 100 tokens/s with 0 B moved to 180 tokens/s with 2.5 GB moved.")


def test_one_answer_or_none_is_said_in_words() -> None:
    assert moved_bytes([answer(0, 7.0)]).summary == "One answer: 7 tokens/s with 0 B moved."
    assert moved_bytes([]).summary == "No answer has been found yet."
