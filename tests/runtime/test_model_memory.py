"""What a share of a model takes of memory, in tensors and as the operating system counts it."""

import subprocess
import sys
from pathlib import Path

import family_checkpoints
import pytest
import torch
from family_checkpoints import FAMILIES, LAYERS
from gguf_files import QuantType, write_gguf

from runtime.models import free_memory
from runtime.models.config import read_config
from runtime.models.free_memory import MemoryTooSmall, free_bytes
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.models.weights import load_decoder

CPU = torch.device("cpu")
DEEP = TinySizes(
    num_layers=16,
    hidden_size=384,
    intermediate_size=1536,
    num_heads=6,
    num_kv_heads=6,
    vocab_size=261,
    shards=4,
)
# prints for each PATH:first:end the anonymous memory that loading these layers has added: also what
# the system has moved to swap, and without what the allocator keeps of memory that was freed
MEASURE = """
import ctypes, gc, os, sys
from pathlib import Path
import torch
from runtime.models.config import read_config
from runtime.models.weights import load_decoder

def anonymous():
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    counted = [line.split() for line in lines if line.startswith(("Anonymous:", "Swap:"))]
    return sum(int(words[1]) for words in counted) * 1024

def load(checkpoint, first, end):
    return load_decoder(checkpoint, read_config(checkpoint), first=first, end=end,
                        device=torch.device("cpu"), progress=lambda done, total: None)

def measure(checkpoint, first, end):
    warm = load(checkpoint, 7, 8)
    before = anonymous()
    held = load(checkpoint, first, end)
    print(anonymous() - before, flush=True)

for share in sys.argv[1:]:
    path, first, end = share.rsplit(":", 2)
    child = os.fork()
    if child == 0:
        measure(Path(path), int(first), int(end))
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        sys.exit(1)
"""


def weights_in_memory(*shares: tuple[Path, int, int]) -> list[int]:
    """Bytes that layers of a checkpoint add, each measured in a process of its own: a fork, since
    torch takes longer to load than they do."""
    found = subprocess.run(
        [sys.executable, "-c", MEASURE, *(f"{path}:{first}:{end}" for path, first, end in shares)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        cwd=Path(__file__).parents[2],
        env={"OMP_NUM_THREADS": "1"},
    )
    return [int(line) for line in found.stdout.splitlines()]


@pytest.mark.processes
@pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux's account of memory"
)
def test_k_of_n_layers_take_k_nths_of_the_memory(tmp_path: Path) -> None:
    checkpoint = tmp_path / "plain"
    make_tiny_checkpoint(checkpoint, sizes=DEEP, seed=0)
    layer = read_config(checkpoint).bytes_per_layer
    quantized = write_gguf(tmp_path / "model.gguf", checkpoint, quantized=QuantType.Q8_0)
    plain = [(checkpoint, 1, 5), (checkpoint, 4, 12), (checkpoint, 1, 15)]
    *found, of_quantized = weights_in_memory(*plain, (quantized, 4, 12))
    for (_, first, end), held in zip(plain, found, strict=True):
        assert held == pytest.approx((end - first) * layer, rel=0.05), (first, end)
    assert of_quantized == pytest.approx(8 * layer / 2, rel=0.05)  # in bfloat16


@pytest.mark.parametrize("name", ["gemma2", "qwen3 moe", "mixtral", "llama with biases"])
def test_a_bridged_share_holds_its_layers_and_nothing_of_the_others(
    name: str, tmp_path: Path
) -> None:
    family_checkpoints.save(FAMILIES[name], tmp_path, seed=0)
    config = read_config(tmp_path)
    for first, end in ((0, 2), (2, 4), (4, LAYERS)):
        decoder = load_decoder(
            tmp_path, config, first=first, end=end, device=CPU, progress=lambda _done, _total: None
        )
        tensors = {
            id(each): each.nbytes
            for module in (decoder.model, *decoder.layers)
            for each in module.parameters()
            if not each.is_meta
        }
        assert sum(tensors.values()) == pytest.approx(config.weights_bytes(first, end), rel=0.01)


def test_layers_that_do_not_fit_are_refused_with_needed_and_free_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tiny_checkpoint(tmp_path, sizes=TinySizes(num_layers=2), seed=0)
    config = read_config(tmp_path)
    needed = config.weights_bytes(0, 2)
    monkeypatch.setattr(free_memory, "free_bytes", lambda _device: needed - 1)
    with pytest.raises(MemoryTooSmall, match=rf"need {needed} bytes.*{needed - 1} bytes are free"):
        load_decoder(
            tmp_path, config, first=0, end=2, device=CPU, progress=lambda _done, _total: None
        )


def test_a_container_has_free_what_its_limit_leaves_beside_the_file_cache(tmp_path: Path) -> None:
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 500\ninactive_file 150\n")
    (tmp_path / "memory.max").write_text("1000\n")
    assert free_memory._container_free_bytes(tmp_path) == 450
    (tmp_path / "memory.max").write_text("max\n")
    assert free_memory._container_free_bytes(tmp_path) is None
    assert free_memory._container_free_bytes(tmp_path / "none") is None
    assert free_bytes(CPU) > 0
