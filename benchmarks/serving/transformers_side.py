"""A process that generates with transformers: static batches, and its continuous batching.

Reads one JSON line per batch, `{"way": ..., "prompts": [[...]], "output_tokens": n}`, and answers
`{"tokens": n, "seconds": s, "cpu_s": s}`. Started by compare.py.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig
from transformers.utils import logging

_BLOCK_TOKENS = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    logging.set_verbosity_error()
    loaded = AutoModelForCausalLM.from_pretrained(options.checkpoint, dtype=options.dtype)
    model: Any = loaded.eval()
    ways = {"static": generate_static, "continuous": generate_continuously}
    for line in sys.stdin:
        told = json.loads(line)
        began, cpu_began = time.perf_counter(), time.process_time()
        tokens = ways[told["way"]](model, told["prompts"], told["output_tokens"])
        spent = {
            "tokens": tokens,
            "seconds": time.perf_counter() - began,
            "cpu_s": time.process_time() - cpu_began,
        }
        print(json.dumps(spent), flush=True)


def generate_static(model: Any, prompts: list[list[int]], output_tokens: int) -> int:
    """All prompts, of one length, as one batch."""
    prompts_BT = torch.tensor(prompts)
    whole_BT = model.generate(
        prompts_BT,
        attention_mask=torch.ones_like(prompts_BT),
        do_sample=False,
        max_new_tokens=output_tokens,
        min_new_tokens=output_tokens,
    )
    return int(whole_BT[:, prompts_BT.shape[1] :].numel())


def generate_continuously(model: Any, prompts: list[list[int]], output_tokens: int) -> int:
    longest = len(prompts[0]) + output_tokens
    blocks = len(prompts) * (-(-longest // _BLOCK_TOKENS) + 1)
    found = model.generate_batch(
        inputs=prompts,
        generation_config=GenerationConfig(
            max_new_tokens=output_tokens, do_sample=False, eos_token_id=-1, pad_token_id=0
        ),
        continuous_batching_config=ContinuousBatchingConfig(
            page_size=_BLOCK_TOKENS, num_blocks=blocks, max_batch_tokens=512
        ),
    )
    return sum(len(each.generated_tokens) for each in found.values())


if __name__ == "__main__":
    main()
