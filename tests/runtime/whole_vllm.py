"""Greedy answers of whole vLLM. A program of its own: a process has one place in a pipeline.

Reads {"checkpoints": [...], "prompts": [[token id, ...], ...], "max_tokens": n} as JSON from stdin,
writes {checkpoint: [[token id, ...], ...]} to the file that is its argument.
"""

import json
import os
import sys
from pathlib import Path

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"


def answers(checkpoint: str, prompts: list[list[int]], *, max_tokens: int) -> list[list[int]]:
    """One request at a time. The model is gone when this returns, as the next one needs."""
    import torch
    from vllm import LLM, SamplingParams

    # on a GPU vLLM asks for this share of it to be free, which other tests use too
    share = {"gpu_memory_utilization": 0.02} if torch.cuda.is_available() else {}
    model = LLM(
        checkpoint,
        **share,
        skip_tokenizer_init=True,
        enforce_eager=True,
        max_model_len=128,
        max_num_seqs=1,
        enable_prefix_caching=False,
        kv_cache_memory_bytes=1 << 24,
    )
    greedy = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True, detokenize=False)
    answered = []
    for prompt in prompts:
        [request] = model.generate({"prompt_token_ids": prompt}, greedy, use_tqdm=False)
        answered.append(list(request.outputs[0].token_ids))
    return answered


if __name__ == "__main__":
    order = json.load(sys.stdin)
    found = {
        checkpoint: answers(checkpoint, order["prompts"], max_tokens=order["max_tokens"])
        for checkpoint in order["checkpoints"]
    }
    Path(sys.argv[1]).write_text(json.dumps(found), encoding="utf-8")
