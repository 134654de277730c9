"""What the allocator of a stage does with the temporary tensors of its steps."""

import ctypes
import os
import statistics
import subprocess
import sys

import pytest

# page faults of each of eleven steps that sample one row of a large vocabulary
_PROGRAM = """
import resource, sys
import torch
from runtime.free_memory import keep_freed_memory
from runtime.engine.host_memory import host_memory
from runtime.engine.sampled_row import SampledRow
from runtime.engine.sampling_batch import SamplingBatch
from runtime.protocol.data import Sampling
torch.set_num_threads(1)
if sys.argv[1] == "kept":
    keep_freed_memory()
memory = host_memory(torch.device("cpu"))
sampling = Sampling(temperature=1.0, top_p=0.9, top_k=0, seed=1, max_tokens=1)
batch = SamplingBatch([SampledRow(sampling=sampling, position=0)])
logits = torch.randn(1, 128_256)
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    batch.sample(logits, memory)
for _ in range(11):
    before = faults()
    batch.sample(logits, memory)
    print(faults() - before)
"""


def faults(how: str) -> list[int]:
    # glibc raises its threshold by itself when large buffers are freed; when that happens depends
    # on what the process loaded before. A threshold that is set stays, until the process sets its
    # own.
    held = {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=131072"}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, how], capture_output=True, text=True, check=True, env=held
    )
    return [int(line) for line in done.stdout.split()]


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="needs glibc")
def test_steps_after_the_first_reuse_the_memory_of_those_before() -> None:
    by_itself, kept = faults("by itself"), faults("kept")
    # The median: a single step may grow the heap once more. A step has ten temporary tensors
    # of 1 MB, 256 pages each.
    assert 10 * statistics.median(kept) < statistics.median(by_itself), (kept, by_itself)
