"""The flow graph of that placement, with partial inference: what passes, and what limits it."""

from docs.figures.example import KINDS, flow, gpus
from planner.commands.drawing import FAINT, INK, RED, Drawing

PLACES = {
    "source": (70, 150), "a": (240, 80), "b": (240, 220), "c": (430, 220), "d": (560, 80),
    "e": (620, 220), "sink": (770, 150),
}  # fmt: skip
WIDE, HIGH = 104, 56


def draw() -> str:
    found = flow(partial_inference=True)
    kinds = gpus()
    picture = Drawing(
        850, 310,
        f"From the coordinator through nodes a to e and back: {found.value_tokens_per_s:.0f} "
        "tokens a second pass in all, limited by " + ", ".join(found.min_cut.nodes),
    )  # fmt: skip
    for edge in found.edges:
        (x1, y1), (x2, y2) = PLACES[edge.source], PLACES[edge.target]
        used = edge.flow_tokens_per_s > 0.5
        picture.line(
            x1 + WIDE / 2, y1, x2 - WIDE / 2 - 2, y2, arrow=True, dashed=not used,
            colour=INK if used else FAINT, width=1 + edge.flow_tokens_per_s / 300,
        )  # fmt: skip
        if used:
            picture.words(
                (x1 + x2) / 2, (y1 + y2) / 2 - 7, f"{edge.flow_tokens_per_s:.0f}", size=12
            )
    for name, (x, y) in PLACES.items():
        limits = name in found.min_cut.nodes
        colour = RED if limits else KINDS.get(kinds.get(name, ""), INK)
        picture.box(x - WIDE / 2, y - HIGH / 2, WIDE, HIGH, stroke=colour)
        if name in found.nodes:
            node = found.nodes[name]
            told = f"{node.flow_tokens_per_s:.0f} of {node.capacity_tokens_per_s:.0f}"
            picture.words(x, y - 6, f"{name} · {kinds[name]}", bold=True, colour=colour)
            picture.words(x, y + 14, told, size=12)
        else:
            picture.words(x, y - 6, "coordinator", bold=True)
            picture.words(x, y + 14, "sends" if name == "source" else "gets back", size=12)
    picture.words(
        20, 298, f"tokens/s · max flow {found.value_tokens_per_s:.0f} · framed in red: the min "
        "cut, whose nodes are full", at="start", size=12, colour=FAINT,
    )  # fmt: skip
    return picture.svg()
