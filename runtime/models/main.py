"""`python -m runtime checkpoint`: make the small Llama checkpoint of the demo."""

import argparse
import json
import sys
from pathlib import Path

import torch

from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.models.tiny_training import DIALOGUES, Trainer, TrainingFell

_SIZES = TinySizes()


def main(argv: list[str]) -> int:
    """Make it; prints one JSON object. Returns 0, or 2 with one line on stderr."""
    arguments = _parser().parse_args(argv)
    torch.set_num_threads(arguments.threads)
    losses: list[float] = []

    def report(step: int, loss: float) -> None:
        losses.append(loss)
        if step % 10 == 0:
            print(f"step {step}: loss {loss:.3f}", file=sys.stderr)

    try:
        make_tiny_checkpoint(
            arguments.output,
            sizes=TinySizes(
                num_layers=arguments.layers,
                hidden_size=arguments.hidden,
                intermediate_size=arguments.intermediate,
                num_heads=arguments.heads,
                num_kv_heads=arguments.kv_heads,
                vocab_size=arguments.vocabulary,
                max_position_embeddings=arguments.context,
                shards=arguments.shards,
            ),
            seed=arguments.seed,
            dialogues=DIALOGUES,
            train=Trainer(
                max_steps=arguments.train_steps,
                target_loss=arguments.target_loss,
                learning_rate=arguments.learning_rate,
                report=report,
            ),
        )
    except (ValueError, OSError, TrainingFell) as error:
        print(f"cannot make the checkpoint: {error}", file=sys.stderr)
        return 2
    loss = losses[-1] if losses else None
    if loss is not None and loss > arguments.target_loss:
        print(
            f"the loss is {loss:.3f} after {len(losses)} steps, above {arguments.target_loss}: "
            "answers may not be readable; raise --train-steps",
            file=sys.stderr,
        )
    print(
        json.dumps(
            {
                "checkpoint": str(arguments.output),
                "steps": len(losses),
                "loss": loss,
                "questions": [dialogue.question for dialogue in DIALOGUES],
            }
        )
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m runtime checkpoint", description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="directory to write")
    parser.add_argument("--layers", type=int, default=_SIZES.num_layers)
    parser.add_argument("--hidden", type=int, default=_SIZES.hidden_size)
    parser.add_argument("--intermediate", type=int, default=_SIZES.intermediate_size)
    parser.add_argument("--heads", type=int, default=_SIZES.num_heads)
    parser.add_argument("--kv-heads", type=int, default=_SIZES.num_kv_heads)
    parser.add_argument("--vocabulary", type=int, default=_SIZES.vocab_size)
    parser.add_argument("--context", type=int, default=_SIZES.max_position_embeddings)
    parser.add_argument("--shards", type=int, default=_SIZES.shards)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--train-steps", type=int, default=200, help="0 leaves it random")
    parser.add_argument("--target-loss", type=float, default=0.02, help="stop training there")
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--threads", type=int, default=1)
    return parser
