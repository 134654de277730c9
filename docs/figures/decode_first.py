"""What a decode waits on a slow link while a prompt passes: in one queue, and on its own lane."""

from planner.commands.drawing import BLUE, FAINT, ORANGE, RED, Drawing

# 100 Mb/s; a prompt of 13.3 MB; a decode of 53 kB every 50 ms: MoLink's case.
RATE, PROMPT, DECODE, EVERY_S = 12.5e6, 13.3e6, 53e3, 0.05
PIECE = 0.5e6
LEFT, WIDE, SHOWN_S = 150, 620, 0.4


def draw() -> str:
    picture = Drawing(
        LEFT + WIDE + 30, 210,
        "Above, one queue: decodes wait until the whole prompt has passed. Below, decodes go first "
        "and the prompt follows in pieces",
    )  # fmt: skip
    scale = WIDE / SHOWN_S
    for row, title in ((50, "one queue"), (130, "decodes first")):
        picture.words(LEFT - 12, row + 24, title, at="end", bold=True)
        picture.box(LEFT, row, WIDE, 36)
    picture.box(LEFT, 52, WIDE, 32, fill=ORANGE, stroke=ORANGE, opacity=0.8)
    picture.words(LEFT + WIDE / 2, 73, f"prompt, {PROMPT / RATE:.2f} s …", bold=True)
    waiting = [EVERY_S * n for n in range(1, int(SHOWN_S / EVERY_S))]
    for moment in waiting:
        picture.line(LEFT + moment * scale, 40, LEFT + moment * scale, 50, colour=RED, width=2)
    picture.words(LEFT, 32, "decodes that come here wait for all of it", at="start", size=12,
                  colour=RED)  # fmt: skip
    now = 0.0
    while now < SHOWN_S:
        next_decode = (int(now / EVERY_S + 1e-9) + 1) * EVERY_S
        piece_end = min(now + PIECE / RATE, next_decode, SHOWN_S)
        x = LEFT + now * scale
        picture.box(x + 1, 132, (piece_end - now) * scale - 2, 32, fill=ORANGE, stroke=ORANGE,
                    opacity=0.8)  # fmt: skip
        now = piece_end
        if now >= next_decode - 1e-9 and now < SHOWN_S:
            picture.box(LEFT + now * scale, 130, DECODE / RATE * scale, 36, fill=BLUE, stroke=BLUE)
            now += DECODE / RATE
    picture.words(
        LEFT, 194, "a 100 Mb/s link: a prompt of 1000 tokens (orange, 13.3 MB), a decode (blue, "
        "53 kB) every 50 ms", at="start", size=12, colour=FAINT,
    )  # fmt: skip
    return picture.svg()
