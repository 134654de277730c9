"""Where the time of a decode step goes: torch's own profile of one stage, without its messages.

python benchmarks/serving/step_profile.py [PARAMETERS.toml] [--streams 32] [--context 128]
"""

import argparse
import statistics
import tempfile
import time
import tomllib
from pathlib import Path

import numpy as np
import torch
from checkpoint import cached_checkpoint
from torch.profiler import ProfilerActivity, profile

from runtime.engine.grammar import Grammars
from runtime.engine.kv_cache import KvCache
from runtime.engine.limits import EngineLimits
from runtime.engine.model_backend import ModelBackend
from runtime.engine.model_runner import ModelRunner
from runtime.engine.sequence import Chunk, RequestKey, Sequence, Work
from runtime.models.config import read_config
from runtime.models.tiny_checkpoint import TinySizes
from runtime.models.weights import load_decoder
from runtime.protocol.routes import Hop, Route, Sampling

HERE = Path(__file__).parent
PAGE_TOKENS = 16
STEPS = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parameters", type=Path, nargs="?", default=HERE / "parameters.toml")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument(
        "--cache", type=Path, default=Path(tempfile.gettempdir()) / "helixweb-serving"
    )
    options = parser.parse_args()
    parameters = tomllib.loads(options.parameters.read_text())
    torch.set_num_threads(len(parameters["cores"]))
    checkpoint = cached_checkpoint(options.cache, TinySizes(**parameters["model"]))
    config = read_config(checkpoint)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    decoder = load_decoder(
        checkpoint,
        config,
        first=0,
        end=config.num_layers,
        device=device,
        progress=lambda _done, _total: None,
    )
    blocks = -(-(options.context + STEPS + 1) // PAGE_TOKENS)
    pages = config.num_layers * options.streams * blocks
    cache = KvCache(config, pages=pages, page_tokens=PAGE_TOKENS, device=device)
    limits = EngineLimits(
        page_tokens=PAGE_TOKENS,
        max_batch_tokens=512,
        max_context_tokens=config.max_position_embeddings,
    )
    backend = ModelBackend(
        ModelRunner(decoder, cache, max_context_tokens=limits.max_context_tokens),
        grammars=Grammars(checkpoint, vocab_size=config.vocab_size),
    )
    sequences = [_sequence(number, config.num_layers) for number in range(options.streams)]
    _step(backend, sequences, position=options.context)  # warms up
    spent_s = []
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        for position in range(options.context + 1, options.context + STEPS + 1):
            began_s = time.process_time()
            _step(backend, sequences, position=position)
            spent_s.append(time.process_time() - began_s)
    print(profiled.key_averages().table(sort_by="self_cpu_time_total", row_limit=15))
    print(f"{statistics.median(spent_s) * 1e3:.1f} ms of CPU per step of {options.streams} decodes")


def _sequence(number: int, num_layers: int) -> Sequence:
    """Its context is never written: what is in the cache does not change how long a step takes."""
    hop = Hop(node="here", first=0, end=num_layers)
    sampling = Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=1000)
    return Sequence(
        key=RequestKey(request=number, epoch=1),
        generation=1,
        route=Route(hops=(hop,), sampling=sampling, prompt_tokens=1),
        hop=0,
        arrival=number,
    )


def _step(backend: ModelBackend, sequences: list[Sequence], *, position: int) -> None:
    step = []
    for sequence in sequences:
        chunk = Chunk(
            position=position,
            n_tokens=1,
            payload=memoryview(np.array([7], dtype="<i4").tobytes()),
            is_sampled=True,
            arrival=0,
        )
        backend.kv_manager.reserve(sequence.table, tokens=chunk.end)
        step.append(Work(sequence=sequence, chunk=chunk))
    backend.run(step)


if __name__ == "__main__":
    main()
