"""What `transformers` generates greedily from a whole checkpoint: the answer ours must equal.

`python -m runtime reference --checkpoint DIR --chat QUESTION [--chat ...] --max-tokens N` prints
[{"prompt_token_ids": [...], "token_ids": [...]}, ...]; used by `make demo CHECK=1` and by tests.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from runtime.checkpoints.errors import CheckpointError
from runtime.checkpoints.metadata import gguf_file, read_model_config


def _place(checkpoint: Path) -> dict[str, Any]:
    """How `transformers` wants to be told where a checkpoint is."""
    gguf = gguf_file(checkpoint)
    if gguf is None:
        return {"pretrained_model_name_or_path": checkpoint}
    return {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}


def greedy_tokens(checkpoint: Path, *, prompt_token_ids: list[int], max_tokens: int) -> list[int]:
    """The continuation, in fp32 on CPU; a final end-of-sequence token is kept."""
    import torch
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(
        **_place(checkpoint), dtype=torch.float32, local_files_only=True
    )
    prompt_1T = torch.tensor([prompt_token_ids])
    with torch.inference_mode():
        whole_1T = model.generate(
            prompt_1T,
            attention_mask=torch.ones_like(prompt_1T),
            do_sample=False,
            max_new_tokens=max_tokens,
        )
    ids: list[int] = whole_1T[0, len(prompt_token_ids) :].tolist()
    return ids


def chat_prompt(checkpoint: Path, question: str) -> list[int]:
    """The token ids of one user message under the checkpoint's own chat template."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(**_place(checkpoint), local_files_only=True)
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True
    )
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def main(argv: list[str]) -> int:
    """Exit status 2 when `transformers` is not installed or the checkpoint is not there."""
    parser = argparse.ArgumentParser(prog="python -m runtime reference", description=__doc__)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--chat", required=True, action="append", help="one user message")
    parser.add_argument("--max-tokens", type=int, default=48)
    arguments = parser.parse_args(argv)
    try:
        read_model_config(arguments.checkpoint)
    except CheckpointError as error:
        print(error, file=sys.stderr)
        return 2
    try:
        import transformers
    except ImportError:
        print("transformers is not installed; run: pip install 'helixweb[dev]'", file=sys.stderr)
        return 2
    library: Any = transformers
    library.logging.set_verbosity_error()
    answers = []
    for question in arguments.chat:
        prompt = chat_prompt(arguments.checkpoint, question)
        tokens = greedy_tokens(
            arguments.checkpoint, prompt_token_ids=prompt, max_tokens=arguments.max_tokens
        )
        answers.append({"prompt_token_ids": prompt, "token_ids": tokens})
    print(json.dumps(answers))
    return 0
