"""A placement: which layers each node holds."""

from docs.figures.drawing import FAINT, KINDS, Drawing
from docs.figures.example import LAYERS, RANGES, gpus

LEFT, TOP, CELL, ROW = 120, 44, 44, 38


def draw() -> str:
    picture = Drawing(
        LEFT + LAYERS * CELL + 20, TOP + len(RANGES) * ROW + 16,
        "Five nodes as rows, twelve layers as columns: a holds 0 to 5, b 0 to 3, c 4 to 7, "
        "d 6 to 11, e 8 to 11",
    )  # fmt: skip
    for layer in range(LAYERS):
        picture.words(LEFT + (layer + 0.5) * CELL, TOP - 10, str(layer), colour=FAINT)
    picture.words(LEFT - 12, TOP - 10, "layer", at="end", colour=FAINT)
    kinds = gpus()
    for row, (node, (first, end)) in enumerate(RANGES.items()):
        y = TOP + row * ROW
        picture.words(LEFT - 12, y + 22, f"{node} · {kinds[node]}", at="end", bold=True)
        picture.line(
            LEFT, y + ROW - 3, LEFT + LAYERS * CELL, y + ROW - 3, colour="#d8e0e4", width=1
        )
        picture.box(
            LEFT + first * CELL + 2, y + 3, (end - first) * CELL - 4, ROW - 12,
            fill=KINDS[kinds[node]], stroke=KINDS[kinds[node]], opacity=0.85,
        )  # fmt: skip
        picture.words(
            LEFT + (first + end) / 2 * CELL, y + 21, f"[{first}, {end})", colour="#ffffff"
        )
    return picture.svg()
