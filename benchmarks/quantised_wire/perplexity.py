"""Perplexity of checkpoints on vLLM: whole, and cut into stages that exchange one tensor.

Runs in vLLM's environment. See README.md.
"""

import argparse
import json
import math
import shutil
import sys
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedTokenizerFast

from runtime.checkpoints.model_facts import read_sizes
from runtime.engine.limits import EngineLimits
from runtime.engine.sequence import Chunk, RequestKey, Sequence, Work
from runtime.engine.step_runner import StepRunner
from runtime.engine.vllm_loading import check_layers
from runtime.protocol.data import Hop, Route, Sampling
from tests.runtime.carried_residuals import residuals_carried, with_wide_rows
from tests.runtime.quantized_checkpoints import quantize
from tests.runtime.vllm_families import EQUAL_TO_VLLM

ROOT = Path(__file__).resolve().parents[2]
TEXT = sorted(ROOT.glob("docs/*.md"))
PAGE_TOKENS, PAGES = 16, 2000
MOST_WORSE = 0.005
GREEDY = Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="folder of an unquantised checkpoint")
    parser.add_argument("folder", type=Path, help="where quantised checkpoints are, or are made")
    parser.add_argument(
        "--kinds", nargs="*", default=["bf16", *EQUAL_TO_VLLM], help="of %(default)s"
    )
    parser.add_argument("--stages", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=6144, help="of the repository's docs/*.md")
    parser.add_argument("--window", type=int, default=512, help="tokens with a common context")
    told = parser.parse_args()
    torch.set_num_threads(1)
    ids = _text(told.model)[: told.tokens]
    windows = [ids[at : at + told.window] for at in range(0, len(ids), told.window)]
    sys.stdout.write(f"{len(ids)} tokens in windows of {told.window}, {told.stages} stages\n\n")
    sys.stdout.write("| checkpoint | whole | one tensor | worse |\n|---|---:|---:|---:|\n")
    missed = []
    for kind in told.kinds:
        checkpoint = _checkpoint(told.model, told.folder, kind)
        exact = _perplexity(checkpoint, windows, stages=1, is_exact=True)
        cut = _perplexity(checkpoint, windows, stages=told.stages, is_exact=False)
        worse = cut / exact - 1
        sys.stdout.write(f"| {kind} | {exact:.4f} | {cut:.4f} | {worse:+.3%} |\n")
        sys.stdout.flush()
        if not worse <= MOST_WORSE:
            missed.append(kind)
    if missed:
        sys.exit(f"more than {MOST_WORSE:.1%} worse: {', '.join(missed)}")


def _text(model: Path) -> list[int]:
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(model / "tokenizer.json"))
    ids: list[int] = tokenizer.encode("\n".join(path.read_text("utf-8") for path in TEXT))
    return ids


def _checkpoint(model: Path, folder: Path, kind: str) -> Path:
    """Made by plain rounding, of the model's weights in bfloat16, unless it is there."""
    plain = folder / "bf16"
    if not plain.exists():
        shutil.copytree(model, plain, ignore=shutil.ignore_patterns("*.safetensors"))
        tensors = load_file(model / "model.safetensors")
        rounded = {name: tensor.to(torch.bfloat16) for name, tensor in tensors.items()}
        save_file(rounded, plain / "model.safetensors", metadata={"format": "pt"})
        config = json.loads((model / "config.json").read_text("utf-8")) | {"dtype": "bfloat16"}
        (plain / "config.json").write_text(json.dumps(config), encoding="utf-8")
    if not (folder / kind).exists():
        shutil.rmtree(quantize(plain, folder / kind, kind))
    return folder / kind


def _perplexity(
    checkpoint: Path, windows: list[list[int]], *, stages: int, is_exact: bool
) -> float:
    """`is_exact`: rows and residuals are carried apart, as within whole vLLM."""
    sizes = read_sizes(checkpoint)
    limits = EngineLimits(
        page_tokens=PAGE_TOKENS,
        max_batch_tokens=max(map(len, windows)),
        max_context_tokens=max(map(len, windows)),
    )
    cuts = [sizes.num_layers * at // stages for at in range(stages + 1)]
    chain: list[tuple[range, StepRunner]] = []
    for first, end in pairwise(cuts):
        layers = range(first, end)
        unread = check_layers(checkpoint, sizes, layers, limits=limits)
        opened = unread.read(lambda _done, _total: None)
        runner = opened.runner(pages=PAGES)
        chain.append((layers, with_wide_rows(runner) if is_exact else runner))
    lost, count = 0.0, 0
    with residuals_carried() if is_exact else nullcontext():
        for ids in windows:
            logits_TV = _logits(chain, ids)[:-1]
            lost += float(cross_entropy(logits_TV, torch.tensor(ids[1:]), reduction="sum"))
            count += len(ids) - 1
    return math.exp(lost / count)


def _logits(chain: list[tuple[range, StepRunner]], ids: list[int]) -> Tensor:
    """Of every position, by teacher forcing."""
    hops = tuple(Hop(node="n", first=layers.start, end=layers.stop) for layers, _ in chain)
    route = Route(hops=hops, prompt_tokens=len(ids), sampling=GREEDY)
    payload = np.array(ids, dtype="<i4").tobytes()
    for hop, (_, runner) in enumerate(chain):
        sequence = Sequence(
            key=RequestKey(request=0, epoch=0), generation=1, route=route, hop=hop, arrival=0
        )
        chunk = Chunk(
            position=0, n_tokens=len(ids), payload=memoryview(payload), is_sampled=False, arrival=0
        )
        runner.cache.kv_manager.reserve(sequence.table, tokens=chunk.end)
        hidden_TD = runner.forward([Work(sequence=sequence, chunk=chunk)])
        runner.cache.kv_manager.release(sequence.table)
        payload = hidden_TD.contiguous().view(torch.uint8).numpy().tobytes()
    return runner.logits(hidden_TD)


if __name__ == "__main__":
    main()
