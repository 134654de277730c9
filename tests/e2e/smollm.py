"""SmolLM2-135M-Instruct as a folder with safetensors, as vLLM reads it, quantised or not."""

import json
import os
from pathlib import Path

import torch
from safetensors.torch import save_file

from helixweb.demo.chat_model import FILE_NAME, fetch_chat_model
from runtime.checkpoints.gguf_config import config_of
from runtime.checkpoints.gguf_tokenizer import tokenizer_config_of, tokenizer_of
from runtime.models.gguf_tensors import GgufTensors
from tests.runtime.quantized_checkpoints import quantize

# kept between runs
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "helixweb-tests"


def smollm(folder: Path, *, dtype: str = "float32") -> Path:
    """The checkpoint, made in `folder`, which must not exist; its file is fetched once."""
    gguf = CACHE / FILE_NAME
    if not gguf.exists():
        fetch_chat_model(gguf)
    found = GgufTensors.of(gguf)
    folder.mkdir(parents=True)
    tensors = {
        name: torch.cat(list(found.rows(name, 0, found.shape(name)[0]))).to(getattr(torch, dtype))
        for name in found.names()
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    files = {
        "config.json": config_of(found.header)
        | {"architectures": ["LlamaForCausalLM"], "dtype": dtype},
        "tokenizer.json": json.loads(tokenizer_of(found.header)),
        "tokenizer_config.json": tokenizer_config_of(found.header)
        | {"tokenizer_class": "PreTrainedTokenizerFast"},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    return folder


def quantized_smollm(folder: Path, kind: str) -> Path:
    """The same in a kind of `quantized_checkpoints`, computed in bfloat16."""
    quantize(smollm(folder.parent / f"{folder.name}-whole", dtype="bfloat16"), folder, kind)
    return folder
