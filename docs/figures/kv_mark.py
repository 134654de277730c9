"""The KV estimate of a node and the mark up to which it is filled."""

from planner.commands.drawing import BLUE, FAINT, GREEN, ORANGE, RED, SKY, Drawing
from planner.domain.pipeline import Pipeline, PipelineStage
from planner.routers.base import RequestSize
from planner.routers.kv_estimator import KvEstimator

ROOM, MARK, LAYERS = 10_000.0, 0.9, 4
ASKED = {"r1": (600, 200), "r2": (300, 200), "r3": (400, 200), "r4": (250, 200)}
COLOURS = (BLUE, GREEN, ORANGE, SKY)
LEFT, WIDE = 40, 620


def draw() -> str:
    kv = KvEstimator(capacity_token_layers={"n": ROOM}, page_tokens=16, high_water=MARK)
    pipeline = Pipeline(stages=(PipelineStage(node="n", first=0, end=LAYERS),))
    picture = Drawing(
        LEFT + WIDE + 40, 150,
        "A bar of a node's KV room: three requests have theirs reserved, a fourth would pass the "
        "mark at nine tenths and waits",
    )  # fmt: skip
    picture.box(LEFT, 50, WIDE, 44)
    used = 0.0
    for (name, (prompt, output)), colour in zip(ASKED.items(), COLOURS, strict=True):
        size = RequestSize(prompt_tokens=prompt, predicted_output_tokens=output)
        fits = kv.has_room("n", size=size, num_layers=LAYERS)
        need = kv.reserved_tokens(size) * LAYERS
        x, width = LEFT + used / ROOM * WIDE, need / ROOM * WIDE
        picture.box(x + 1, 52, width - 2, 40, fill=colour, stroke=colour, dashed=not fits,
                    opacity=0.85 if fits else 0.25)  # fmt: skip
        picture.words(x + width / 2, 76, name if fits else f"{name} waits", bold=True)
        if fits:
            kv.admit(name, pipeline, size=size)
            used += need
    picture.line(LEFT + MARK * WIDE, 36, LEFT + MARK * WIDE, 106, colour=RED, width=2)
    picture.words(LEFT + MARK * WIDE, 28, "mark", colour=RED)
    picture.words(
        LEFT, 130, "reserved: (prompt + expected output) · layers run here, in pages of 16 tokens",
        at="start", size=12, colour=FAINT,
    )  # fmt: skip
    return picture.svg()
