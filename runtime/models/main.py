"""`python -m runtime checkpoint --output DIR`: make the small Llama checkpoint of the demo."""

import argparse
import json
import sys
from pathlib import Path

import torch

from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.models.tiny_training import DIALOGUES, Trainer, TrainingFell

_MOST_STEPS, _TARGET_LOSS, _LEARNING_RATE = 200, 0.02, 3e-3


def main(argv: list[str]) -> int:
    """Make it; prints one JSON object. Returns 0, or 2 with one line on stderr."""
    parser = argparse.ArgumentParser(prog="python -m runtime checkpoint", description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="directory to write")
    output: Path = parser.parse_args(argv).output
    torch.set_num_threads(1)
    losses: list[float] = []

    def report(step: int, loss: float) -> None:
        losses.append(loss)
        if step % 10 == 0:
            print(f"step {step}: loss {loss:.3f}", file=sys.stderr)

    trainer = Trainer(
        max_steps=_MOST_STEPS,
        target_loss=_TARGET_LOSS,
        learning_rate=_LEARNING_RATE,
        report=report,
    )
    try:
        make_tiny_checkpoint(output, sizes=TinySizes(), seed=0, dialogues=DIALOGUES, train=trainer)
    except (ValueError, OSError, TrainingFell) as error:
        print(f"cannot make the checkpoint: {error}", file=sys.stderr)
        return 2
    if losses[-1] > _TARGET_LOSS:
        print(
            f"the loss is {losses[-1]:.3f} after {len(losses)} steps, above {_TARGET_LOSS}: "
            "answers may not be readable",
            file=sys.stderr,
        )
    print(
        json.dumps(
            {
                "checkpoint": str(output),
                "steps": len(losses),
                "loss": losses[-1],
                "questions": [dialogue.question for dialogue in DIALOGUES],
            }
        )
    )
    return 0
