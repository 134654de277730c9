"""T_j of three GPUs from their data sheets: the more layers a node holds, the fewer tokens/s."""

import math

from docs.figures.example import KINDS
from planner.commands.drawing import FAINT, Drawing
from planner.domain.problem import Workload
from planner.roofline import LayerShape, data_sheet, roofline_profile

# Of Llama 3.1 8B.
LAYER = LayerShape(
    hidden_size=4096, intermediate_size=14336, query_heads=32, kv_heads=8, head_size=128
)
NUM_LAYERS = 32
SHEETS = {"A100": "A100-40GB", "L4": "L4", "T4": "T4"}
LEFT, TOP, WIDE, HIGH = 70, 30, 560, 220
LEAST, MOST = 2.0, 6.0  # powers of ten of tokens/s


def draw() -> str:
    picture = Drawing(
        LEFT + WIDE + 130, TOP + HIGH + 60,
        "Curves that fall with the number of layers held: A100 above L4 above T4, which ends where "
        "its memory is full",
    )  # fmt: skip
    for power in range(int(LEAST), int(MOST) + 1):
        y = TOP + HIGH * (1 - (power - LEAST) / (MOST - LEAST))
        picture.line(LEFT, y, LEFT + WIDE, y, colour="#d8e0e4", width=1)
        picture.words(LEFT - 8, y + 4, f"{10**power:,}", at="end", size=11, colour=FAINT)
    workload = Workload(mean_prompt_tokens=763, mean_output_tokens=232)
    for kind, sheet in SHEETS.items():
        profile = roofline_profile(
            kind, data_sheet(sheet), LAYER, gpu=sheet, num_layers=NUM_LAYERS, workload=workload
        )
        points = [
            (
                LEFT + WIDE * layers / NUM_LAYERS,
                TOP + HIGH * (1 - (math.log10(speed) - LEAST) / (MOST - LEAST)),
            )
            for layers, speed in enumerate(profile.tokens_per_s, start=1)
        ]
        picture.curve(points, colour=KINDS[kind])
        x, y = points[-1]
        picture.words(x + 6, y + 4, f"{kind}, {len(points)} layers", at="start", size=12,
                      colour=KINDS[kind], bold=True)  # fmt: skip
    picture.words(
        LEFT + WIDE / 2, TOP + HIGH + 22, "layers held, of 32 (Llama 3.1 8B, 16 bits)", size=12
    )
    picture.words(
        LEFT, TOP + HIGH + 46, "tokens/s of a node, from data sheets (roofline), not measured",
        at="start", size=12, colour=FAINT,
    )  # fmt: skip
    return picture.svg()
