"""Interleaved weighted round robin: who gets the next requests, by weights of the flow."""

from planner.commands.drawing import BLUE, FAINT, GREEN, ORANGE, Drawing
from planner.routers.iwrr import InterleavedWeightedRoundRobin

WEIGHTS = {"a": 3.0, "b": 2.0, "c": 1.0}
COLOURS = {"a": BLUE, "b": ORANGE, "c": GREEN}
TURNS, LEFT, CELL = 12, 200, 44


def draw() -> str:
    turns = InterleavedWeightedRoundRobin(WEIGHTS)
    taken = [turns.take(WEIGHTS) for _ in range(TURNS)]
    blocks = [name for name, weight in WEIGHTS.items() for _ in range(round(2 * weight))]
    picture = Drawing(LEFT + TURNS * CELL + 20, 150, "Twelve requests in turn: " + " ".join(taken))
    rows = (("interleaved (ours)", taken, 40), ("one block after another", blocks, 90))
    for title, names, y in rows:
        picture.words(LEFT - 12, y + 22, title, at="end")
        for turn, name in enumerate(names):
            picture.box(
                LEFT + turn * CELL + 3, y, CELL - 6, 32, fill=COLOURS[name], stroke=COLOURS[name]
            )
            picture.words(LEFT + (turn + 0.5) * CELL, y + 21, name, colour="#ffffff", bold=True)
    picture.words(
        LEFT, 24, "next requests, weights a 3 : b 2 : c 1 →", at="start", size=12, colour=FAINT
    )
    return picture.svg()
