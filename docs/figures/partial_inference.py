"""One request that enters nodes in the middle of their layers."""

from docs.figures.example import KINDS, LAYERS, RANGES, flow, gpus
from planner.commands.drawing import FAINT, Drawing

LEFT, TOP, CELL, ROW = 120, 44, 44, 46
PATH = (("a", 0, 6), ("c", 6, 8), ("e", 8, 12))


def draw() -> str:
    with_it = flow(partial_inference=True).value_tokens_per_s
    without = flow(partial_inference=False).value_tokens_per_s
    picture = Drawing(
        LEFT + LAYERS * CELL + 20, TOP + len(PATH) * ROW + 46,
        "A request runs layers 0 to 5 on a, 6 and 7 on c, which holds 4 to 7, and 8 to 11 on e",
    )  # fmt: skip
    for layer in range(LAYERS):
        picture.words(LEFT + (layer + 0.5) * CELL, TOP - 10, str(layer), colour=FAINT)
    kinds = gpus()
    before: tuple[float, float] | None = None
    for row, (node, enter, leave) in enumerate(PATH):
        first, end = RANGES[node]
        y, colour = TOP + row * ROW, KINDS[kinds[node]]
        picture.words(LEFT - 12, y + 22, f"{node} · {kinds[node]}", at="end", bold=True)
        picture.box(
            LEFT + first * CELL + 2, y + 3, (end - first) * CELL - 4, 28,
            fill="#ffffff", stroke=colour, dashed=True,
        )  # fmt: skip
        picture.box(
            LEFT + enter * CELL + 2, y + 3, (leave - enter) * CELL - 4, 28,
            fill=colour, stroke=colour, opacity=0.85,
        )  # fmt: skip
        if before:
            picture.line(*before, LEFT + enter * CELL + 8, y + 2, arrow=True)
        before = (LEFT + leave * CELL - 6, y + 32)
    picture.words(
        20, TOP + len(PATH) * ROW + 32,
        f"filled: what this request runs there · max flow {with_it:.0f} tokens/s with partial "
        f"inference, {without:.0f} without", at="start", size=12, colour=FAINT,
    )  # fmt: skip
    return picture.svg()
