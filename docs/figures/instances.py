"""Pipelines of stages and whole-model instances behind one coordinator."""

from planner.commands.drawing import BLUE, FAINT, GREEN, INK, ORANGE, Drawing


def draw() -> str:
    picture = Drawing(
        760, 270,
        "Clients ask the coordinator; it sends a request through a pipeline of stages, or whole to "
        "an instance of vLLM or of our engine",
    )  # fmt: skip
    picture.box(20, 110, 110, 50)
    picture.words(75, 140, "chat clients")
    picture.box(190, 100, 130, 70, stroke=INK)
    picture.words(255, 130, "coordinator", bold=True)
    picture.words(255, 150, "one /v1", size=12)
    picture.line(130, 135, 188, 135, arrow=True)
    for number, (title, colour) in enumerate((("L4 [0, 8)", GREEN), ("T4 [8, 14)", ORANGE),
                                              ("L4 [14, 24)", GREEN))):  # fmt: skip
        x = 390 + number * 120
        picture.box(x, 30, 100, 46, stroke=colour)
        picture.words(x + 50, 58, title)
        if number:
            picture.line(x - 20, 53, x - 2, 53, arrow=True)
    picture.words(
        390, 20, "a pipeline: each node holds some layers", at="start", size=12, colour=FAINT
    )
    picture.line(320, 120, 388, 60, arrow=True)
    for row, title in ((120, "A100 · whole model · vLLM, degree 2"),
                       (190, "A100 · whole model · our engine")):  # fmt: skip
        picture.box(390, row, 340, 46, stroke=BLUE)
        picture.words(560, row + 28, title)
        picture.line(320, 140, 388, row + 23, arrow=True)
    picture.words(
        390, 256, "instances: each machine holds all layers", at="start", size=12, colour=FAINT
    )
    return picture.svg()
